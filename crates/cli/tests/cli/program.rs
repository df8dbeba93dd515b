//! A program of somebody's: this test binary, started again with workers of its own.

use tidemill::{Context, Enqueue, Fail, Tidemill};

use crate::workflows::{Order, order};

/// Which code the program has.
pub const CODE: &str = "TIDEMILL_TEST_CODE";

/// Not a test of its own: what `workflows replay --with` starts.
#[test]
fn role() {
    let Ok(code) = std::env::var(CODE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mill = Tidemill::open(&std::env::var("TIDEMILL_STORE").unwrap()).await.unwrap();
        let worker = match code.as_str() {
            "same" => mill.worker().handle(order),
            "renamed" => mill.worker().handle(renamed),
            _ => mill.worker(),
        };
        if code != "silent" {
            worker.run().await.unwrap();
        }
        mill.close().await;
    });
}

/// The step `reserve` has another name.
pub async fn renamed(order: Order, cx: Context) -> Result<String, Fail> {
    let undo = Enqueue::raw("release", order.number.to_string());
    cx.step("hold").undo(undo).run(|_| async { Ok(order.number * 2) }).await?;
    cx.signal::<bool>("approve").await?;
    Ok(String::new())
}

/// The command that starts the program with this code.
pub fn command(code: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!("{CODE}={code} '{}' program::role --exact --nocapture", program.display())
}
