//! A workflow whose process dies at each single write comes to the same, with each effect once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tidemill::testing::crash_at_every_write;
use tidemill::{Context, Enqueue, Fail, Job, JobId, Signal, State};

use super::kit::{Echo, Kit};
use super::workflow::{DAY, Flowing, Log, TakeBack, undoing};

over_both_stores!(a_run_that_dies_at_any_write_comes_to_the_same);

/// Effects by their idempotency keys: what a careful service on the other side keeps.
#[derive(Debug, Clone, Default)]
struct Service(Arc<Mutex<BTreeMap<String, u32>>>);

impl Service {
    fn call(&self, key: &str) {
        *self.0.lock().unwrap().entry(key.to_owned()).or_default() += 1;
    }

    /// The effects of a run, without its id.
    fn effects(&self, id: JobId) -> Vec<String> {
        let calls = self.0.lock().unwrap();
        let prefix = format!("{id}/");
        calls.keys().filter_map(|key| key.strip_prefix(&prefix).map(str::to_owned)).collect()
    }
}

async fn a_run_that_dies_at_any_write_comes_to_the_same(kit: Kit) {
    let mill = kit.open_still().await;
    let service = Service::default();
    let called = service.clone();
    let undone = Log::default();
    let worker = || {
        let (service, undone) = (called.clone(), undone.clone());
        let worker = mill.worker().handle(move |job: Flowing, cx: Context| {
            let service = service.clone();
            async move {
                let call = |name: &'static str| {
                    let service = service.clone();
                    let undo = Enqueue::raw(TakeBack::KIND, format!("\"{} {name}\"", cx.id()));
                    cx.step(name).undo(undo).run(move |s| {
                        service.call(s.idempotency_key());
                        async move { Ok(name.len()) }
                    })
                };
                let hold = call("reserve").await?;
                let (tax, risk) = cx.join((call("tax"), call("risk"))).await?;
                let first = cx.race((cx.signal::<bool>("approve"), cx.sleep(DAY))).await?;
                cx.sleep(DAY).await?;
                let each = cx.map("each", 0..3_usize, 2, |cx, n| {
                    let service = service.clone();
                    async move {
                        cx.step("one")
                            .run(|s| {
                                service.call(s.idempotency_key());
                                async move { Ok(n) }
                            })
                            .await
                    }
                });
                let sum: usize = each.await?.iter().sum();
                let child = cx.child(Echo::new("child")).await?;
                call("charge").await?;
                if job.text == "fail" {
                    return Err(Fail::permanent("the card was refused"));
                }
                Ok(format!("{hold} {tax} {risk} {first:?} {sum} {child}"))
            }
        });
        let worker = worker.handle(|echo: Echo, _| async move { Ok(echo.text) });
        undoing(worker, &undone)
    };
    for text in ["work", "fail"] {
        let start = async || {
            let id = mill.enqueue(Flowing { text: text.to_owned() }).await?.id();
            mill.signal(id, Signal::new("approve", &true)).await?;
            Ok(id)
        };
        let views = crash_at_every_write(&mill, &kit.clock, worker, start).await.unwrap();
        assert!(views.len() > 15, "only {} crashes", views.len());
        let effects = service.effects(views[0].job.id);
        assert_eq!(effects.len(), 7, "{effects:?}");
        for (at, view) in views.iter().enumerate() {
            let id = view.job.id;
            assert_eq!(service.effects(id), effects, "crash {at}");
            let mut undos: Vec<String> =
                undone.all().into_iter().filter(|undo| undo.contains(&id.to_string())).collect();
            // An undo whose own end was not heard of runs again, under the same key.
            undos.dedup();
            if text == "work" {
                let output = view.output.as_ref().unwrap_or_else(|| panic!("{view:?}"));
                assert_eq!(output.as_str(), "\"7 3 4 A(true) 3 child\"");
                assert!(undos.is_empty());
            } else {
                assert_eq!(
                    (view.state, undos.len()),
                    (State::Dead, 4),
                    "crash {at}: {undos:?} {view:?}"
                );
                assert!(undos[0].contains("charge") && undos[3].contains("reserve"), "{undos:?}");
            }
        }
    }
}
