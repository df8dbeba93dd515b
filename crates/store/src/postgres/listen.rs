//! Hearing other processes: LISTEN on a connection of its own, for ever.
//!
//! The connection is made when somebody in this process first wants to hear, and again whenever it is
//! lost, with growing pauses, said once a minute. What was missed meanwhile is made good by one `Any`.
//! Behind a pooler that shares connections LISTEN would belong to somebody else's connection, so it is
//! not tried: polling is enough.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::AsyncMessage;

use crate::postgres::Shared;
use crate::postgres::statement::{Statement, sql};
use crate::wake::Hint;

const LISTEN: Statement = sql!("listen");
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
const SAY_EVERY: Duration = Duration::from_mins(1);

/// Listens until the task is ended.
pub(crate) async fn listen(shared: Arc<Shared>) {
    if shared.db.is_behind_pooler() {
        return;
    }
    shared.wake.wanted().await;
    let mut pause = PAUSE_MIN;
    let mut said: Option<Instant> = None;
    loop {
        let began = Instant::now();
        let error = hear(&shared).await;
        shared.listening.send_replace(false);
        if said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            let place = shared.db.place();
            tracing::warn!(%error, place, "other processes are not heard; looking instead");
            said = Some(Instant::now());
        }
        if began.elapsed() > PAUSE_MAX {
            pause = PAUSE_MIN;
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens on one connection; answers why it ended.
async fn hear(shared: &Shared) -> String {
    let (client, mut connection) = match shared.db.undriven().await {
        Ok(connected) => connected,
        Err(error) => return error.to_string(),
    };
    // The driver's messages and the request for them go side by side, on this task.
    let listening = async {
        if let Err(error) = client.batch_execute(LISTEN.text).await {
            return error.to_string();
        }
        shared.listening.send_replace(true);
        shared.wake.tell(Hint::Any);
        std::future::pending().await
    };
    let hearing = async {
        loop {
            match poll_fn(|cx| connection.poll_message(cx)).await {
                Some(Ok(AsyncMessage::Notification(note))) => shared.heard(note.payload()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.to_string(),
                None => return "the server closed the connection".to_owned(),
            }
        }
    };
    tokio::select! {
        ended = listening => ended,
        ended = hearing => ended,
    }
}
