//! Schedules over the wire are the schedules that the engine has.

use std::time::Duration;

use tidemill::core::schedule::Missed;
use tidemill::{Backfill, Enqueue, OnDead, Overlap, Schedule, Timestamp};

use super::kit::Kit;

over_both_stores!(every_wish_of_a_schedule_arrives, slots_are_asked_for_and_fired);

async fn every_wish_of_a_schedule_arrives(kit: Kit) {
    let (hour, at) =
        (Duration::from_hours(1), "2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let job = || Enqueue::raw("report", r#"{"n": 1.50}"#).queue("reports").tag("t");
    let ordered = job().ordered(OnDead::Block);
    let schedules = || {
        [
            Schedule::cron("a/b", "30 2 * * *", job())
                .zone("Europe/Berlin")
                .starts(at)
                .ends(at + hour * 24 * 365)
                .except(["2030-12-24".parse().unwrap()])
                .jitter(hour)
                .missed(Missed::All(7))
                .grace(hour)
                .overlap(Overlap::Skip)
                .owner("ops"),
            Schedule::every("b", hour, job()).spread(hour),
            Schedule::every("c", hour, ordered.clone()).spread_keys(hour, ["x", "y"]),
            Schedule::once("d", at, job()),
        ]
    };
    let (client, mill) = (kit.client.schedules(), kit.mill.schedules());
    for (sent, own) in schedules().into_iter().zip(schedules()) {
        let name = sent.name().to_owned();
        let coming = client.preview_of(sent.clone(), 3).await.unwrap();
        let slots = mill.preview_of(own.clone(), 3).await.unwrap();
        assert_eq!(coming, slots, "{name}");
        let view = client.set(sent).await.unwrap();
        assert_eq!(view, mill.get(&name).await.unwrap(), "{name}");
        let version = view.version;
        assert_eq!(mill.set(own).await.unwrap().version, version, "{name} is the same");
    }
    assert_eq!(client.list(None).await.unwrap(), mill.list(None).await.unwrap());
    assert_eq!(client.list(Some("ops")).await.unwrap().len(), 1);
    assert_eq!(client.preview("a/b", 2).await.unwrap(), mill.preview("a/b", 2).await.unwrap());
    let error = client.delete("a/b", "somebody").await.unwrap_err();
    assert_eq!(error.code(), "schedule_owned");
    let declared = client.declare("ops", [Schedule::every("e", hour, job())]).await.unwrap();
    assert_eq!((declared.made, declared.deleted), (vec!["e".to_owned()], vec!["a/b".to_owned()]));
    let own = mill.declare_preview("ops", [Schedule::every("e", hour, job())]).await.unwrap();
    assert_eq!(own.unchanged, ["e"], "what arrives is what the engine makes of it");
    let back = schedules().into_iter().take(1);
    let would = client.declare_preview("ops", back.clone()).await.unwrap();
    assert_eq!(would, client.declare("ops", back).await.unwrap());
    client.delete("a/b", "ops").await.unwrap();
    assert_eq!(client.get("a/b").await.unwrap_err().code(), "schedule_unknown");
    kit.close().await;
}

async fn slots_are_asked_for_and_fired(kit: Kit) {
    let schedules = kit.client.schedules();
    schedules.set(Schedule::cron("n", "0 0 * * *", Enqueue::raw("k", "1"))).await.unwrap();
    schedules.pause("n").await.unwrap();
    assert!(schedules.get("n").await.unwrap().paused);
    let fired = schedules.run_now("n").await.unwrap();
    assert!(kit.client.job(fired.job.unwrap()).await.unwrap().is_some());
    schedules.resume("n").await.unwrap();
    let to = kit.client.now().await.unwrap();
    let range = Backfill { from: to - Duration::from_hours(72), to, again: false };
    let slots = schedules.backfill_preview("n", range).await.unwrap();
    assert_eq!(slots.len(), 3);
    assert_eq!(schedules.backfill("n", range).await.unwrap().len(), 3);
    let history = schedules.history("n", 10).await.unwrap();
    assert_eq!(history, kit.mill.schedules().history("n", 10).await.unwrap());
    assert_eq!(history.len(), 4);
    kit.close().await;
}
