//! Tells webhooks of alerts: each of them once, whichever processes watch, and none is lost when one of them dies.

use jiff::Timestamp;
use tidemill_core::Alert;
use tidemill_core::alert::book::Look;
use tidemill_core::webhook::alert_delivery;
use uuid::Uuid;

use crate::engine::Tidemill;
use crate::error::Result;

impl Tidemill {
    /// Writes into the book what has changed, and tells what is new in it to the webhooks that want to know. Where
    /// there are none, that is one look at a small table.
    pub(super) async fn tell_webhooks(
        &self,
        from: Timestamp,
        seen: &[Alert],
        holding: &[Alert],
    ) -> Result<()> {
        let all = self.0.store.webhooks().await?;
        let wanting = all.iter().filter(|kept| kept.webhook.alerts && !kept.webhook.paused);
        let wanting: Vec<Uuid> = wanting.map(|kept| kept.id).collect();
        if wanting.is_empty() {
            return Ok(());
        }
        let (mut version, mut book) = self.0.store.alert_book().await?;
        let until = self.0.store.now().await?;
        if book.look(Look { from, until, seen, holding }) {
            if !self.0.store.set_alert_book(version, &book).await? {
                // Another process has just looked; what it wrote is told by it, or at the next turn.
                return Ok(());
            }
            version += 1;
        }
        let news = book.news();
        if news.is_empty() {
            return Ok(());
        }
        let tell =
            |webhook: &Uuid| news.iter().map(|news| alert_delivery(*webhook, news)).collect();
        let jobs: Vec<_> = wanting.iter().flat_map::<Vec<_>, _>(tell).collect();
        self.0.store.enqueue(jobs).await?;
        book.tell();
        self.0.store.set_alert_book(version, &book).await?;
        Ok(())
    }
}
