//! The smallest complete program: define a job, open a store, enqueue, run a worker, get the result.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill::{Job, Tidemill};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const KIND: &'static str = "greet";
    type Output = String;
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let mill = Tidemill::open("sqlite:hello.db").await?;
    let worker = mill
        .worker()
        .handle(|job: Greet, _cx| async move { Ok(format!("Hello, {}!", job.name)) })
        .start()
        .await?;
    for name in ["Ada", "Grace", "Barbara"] {
        let receipt = mill.enqueue(Greet { name: name.into() }).await?;
        println!("{}", mill.result::<Greet>(receipt.id(), Duration::from_secs(10)).await?);
    }
    worker.stop().await;
    mill.close().await;
    Ok(())
}
