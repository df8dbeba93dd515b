//! A program of somebody's: this test binary, started again with workers of its own.

use tidemill::{Context, Enqueue, Fail, Tidemill};
use tidemill_client::Client;

use crate::workflows::{Order, order};

/// Which code the program has.
pub const CODE: &str = "TIDEMILL_TEST_CODE";

/// The store of a program that has its own mind about that.
pub const OWN_STORE: &str = "TIDEMILL_TEST_STORE";

/// Not a test of its own: what `workflows replay --with` starts.
#[test]
fn role() {
    let Ok(code) = std::env::var(CODE) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let given = |name: &str| std::env::var(name).ok();
        let store = match code.as_str() {
            "own" => given(OWN_STORE),
            "store" => Some(given("TIDEMILL_STORE").expect("TIDEMILL_STORE is not set")),
            _ if given("TIDEMILL_SERVER").is_some() => None,
            _ => given("TIDEMILL_STORE"),
        };
        let worker = match store {
            Some(url) => Tidemill::open(&url).await.unwrap().worker(),
            None => Client::from_env().unwrap().worker(),
        };
        let worker = match code.as_str() {
            "same" | "own" | "store" => worker.handle(order),
            "renamed" => worker.handle(renamed),
            _ => worker,
        };
        if code != "silent" {
            worker.run().await.unwrap();
        }
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
