//! A job in your own transaction: roll back and there is no job, commit and there is.

use rusqlite::{Connection, TransactionBehavior};
use serde::{Deserialize, Serialize};
use tidemill::{Job, Tidemill, testing};

#[derive(Serialize, Deserialize)]
struct SendReceipt {
    order: i64,
}

impl Job for SendReceipt {
    const KIND: &'static str = "send_receipt";
    type Output = ();
}

/// The order and its job, in one transaction.
fn place_order(
    mill: &Tidemill,
    shop: &mut Connection,
    paid: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let order = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    order.execute("INSERT INTO orders DEFAULT VALUES", [])?;
    let number = order.last_insert_rowid();
    mill.enqueue_in_rusqlite(&order, SendReceipt { order: number })?;
    if paid {
        order.commit()?;
    } else {
        order.rollback()?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mill = Tidemill::open("sqlite:shop.db").await?;
    let mut shop = Connection::open("shop.db")?;
    shop.execute_batch("CREATE TABLE orders (number integer PRIMARY KEY)")?;

    place_order(&mill, &mut shop, false)?;
    println!("rolled back: {} jobs wait", mill.unfinished().await?.waiting);
    place_order(&mill, &mut shop, true)?;
    println!("committed: {} job waits", mill.unfinished().await?.waiting);

    let worker = mill.worker().handle(|job: SendReceipt, _cx| async move {
        println!("receipt for order {}", job.order);
        Ok(())
    });
    println!("done: {}", testing::drain(worker).await?.done);
    mill.close().await;
    Ok(())
}
