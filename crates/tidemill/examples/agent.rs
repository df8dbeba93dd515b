//! An agent as a workflow: it plans, calls tools, reflects, waits for a person's approval, and sends.
//!
//! The model is scripted here. Every call of it and every tool is a step, so a crash repeats none that ended, and the
//! wait for a person holds nothing, however long it takes.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill::{
    Clock, Context, Enqueue, Fail, First, Job, ManualClock, Signal, Tidemill, Worker, testing,
};

#[derive(Serialize, Deserialize)]
struct Answer {
    question: String,
}

impl Job for Answer {
    const KIND: &'static str = "answer";
    type Output = String;
}

/// What the model wants next.
#[derive(Serialize, Deserialize)]
enum Thought {
    Call { tool: String, with: String },
    Say(String),
}

/// A model that knows one conversation.
fn model(heard: &[String]) -> Thought {
    match heard.len() {
        0 => Thought::Call { tool: "search".into(), with: "tide times, Brest".into() },
        1 => Thought::Call { tool: "compute".into(), with: "next low water".into() },
        _ => Thought::Say(format!("Low water is at {}.", heard[1])),
    }
}

fn tool(name: &str, with: &str) -> String {
    println!("{name}: {with}");
    if name == "search" { "06:10 high".to_owned() } else { "12:25".to_owned() }
}

async fn answer(job: Answer, cx: Context) -> Result<String, Fail> {
    let mut heard: Vec<String> = Vec::new();
    let draft = loop {
        cx.set_state(&format!("round {}", heard.len() + 1))?;
        match cx.step("think").input(&heard).run(|_| async { Ok(model(&heard)) }).await? {
            Thought::Call { tool: name, with } => {
                heard.push(
                    cx.step(&name).input(&with).run(|_| async { Ok(tool(&name, &with)) }).await?,
                );
            }
            Thought::Say(draft) => break draft,
        }
    };
    cx.set_state(&format!("waits for somebody to approve: {draft}"))?;
    match cx.race((cx.signal::<bool>("approve"), cx.sleep(Duration::from_hours(72)))).await? {
        First::A(true) => {}
        First::A(false) => return Err(Fail::permanent("not approved")),
        First::B(()) => return Err(Fail::permanent("nobody looked at it for three days")),
    }
    let undo = Enqueue::raw("unsend", format!("{draft:?}"));
    let send = |_| async {
        println!("sent to {}", job.question);
        Ok(())
    };
    cx.step("send").undo(undo).at_most_once().run(send).await?;
    Ok(draft)
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle(answer)
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let clock = ManualClock::default();
    let builder = Tidemill::builder().clock(Clock::Manual(clock.clone()));
    let mill = builder.open("sqlite::memory:").await?;

    let question = "whoever asked when the sea is low".to_owned();
    let id = mill.enqueue(Answer { question }).await?.id();
    testing::drain(worker(&mill)).await?;
    println!("{}", mill.run_state::<String>(id).await?.unwrap_or_default());

    clock.advance(Duration::from_hours(48)); // a weekend: nothing of it is in memory
    mill.signal(id, Signal::new("approve", &true).id("click-1")).await?;
    testing::drain(worker(&mill)).await?;
    println!("{}", mill.result::<Answer>(id, Duration::from_secs(1)).await?);
    println!("{} entries in its journal", mill.journal(id).await?.len());
    Ok(())
}
