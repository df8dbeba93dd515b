//! Schedules whose names pass to others while somebody is about to act on them.

use std::time::Duration;

use jiff::Timestamp;
use tidemill::store::ScheduleView;
use tidemill::{Backfill, Enqueue, Error, JobFilter, Schedule};

use super::kit::{Echo, Kit};

over_both_stores!(what_passes_to_another_meanwhile_is_left_alone);

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Who may act on a schedule is asked about the one that is there, and acts on that one alone: between the look and the
/// write its name may become that of another tenant's.
async fn what_passes_to_another_meanwhile_is_left_alone(kit: Kit) {
    kit.clock.set(at("2026-01-01T12:00:00Z"));
    let mill = kit.open_still().await;
    let of = |tenant: &str| {
        let job = Enqueue::new(&Echo::new("s")).tenant(tenant);
        Schedule::cron("s", "0 * * * *", job).owner("o")
    };
    // What another process does in a moment, on a runtime of its own.
    let pass = || {
        let (kit, made) = (&kit, of("b"));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async {
                    let other = kit.open_still().await;
                    other.schedules().delete("s", "o").await.unwrap();
                    kit.advance(Duration::from_secs(1));
                    other.schedules().set(made).await.unwrap();
                    other.close().await;
                });
            });
        });
    };
    let schedules = mill.schedules();
    let range =
        Backfill { from: at("2025-12-31T00:00:00Z"), to: at("2025-12-31T03:00:00Z"), again: false };
    for act in ["pause", "resume", "delete", "run", "backfill"] {
        schedules.set(of("a")).await.unwrap();
        if act == "resume" {
            schedules.pause("s").await.unwrap();
        }
        let may = |view: &ScheduleView| {
            if view.definition.job.tenant.as_deref() == Some("b") {
                return Err(Error::ScheduleUnknown { name: "s".into() });
            }
            pass();
            Ok(())
        };
        let done = match act {
            "pause" => schedules.pause_if("s", may).await,
            "resume" => schedules.resume_if("s", may).await,
            "delete" => schedules.delete_if("s", "o", None, may).await,
            "run" => schedules.run_now_if("s", may).await.map(drop),
            _ => schedules.backfill_if("s", range, may).await.map(drop),
        };
        assert_eq!(done.unwrap_err().code(), "schedule_unknown", "{act}");
        let left = schedules.get("s").await.unwrap();
        assert_eq!(
            (left.definition.job.tenant.as_deref(), left.paused),
            (Some("b"), false),
            "{act}"
        );
        assert!(
            mill.jobs(&JobFilter { limit: 9, ..JobFilter::default() }).await.unwrap().is_empty()
        );
        schedules.delete("s", "o").await.unwrap();
        kit.advance(Duration::from_secs(1));
    }
    mill.close().await;
}
