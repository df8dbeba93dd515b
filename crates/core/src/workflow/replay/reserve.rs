//! Numbers of entries that transactions of the code's own write.

use super::Replay;

impl Replay {
    /// The number under which a transaction of the code's own records what this step comes to. It stays the same until
    /// it is sealed.
    pub fn reserve(&mut self, key: &str) -> u32 {
        let next = &mut self.next;
        *self.reserved.entry(key.to_owned()).or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// The number that is reserved for this step.
    pub fn reserved(&self, key: &str) -> Option<u32> {
        self.reserved.get(key).copied()
    }

    /// Whether a number is reserved of which nobody knows what became.
    pub fn has_reserved(&self) -> bool {
        !self.reserved.is_empty()
    }

    /// Nothing can be recorded under the number that was reserved for this step: the next try gets another one.
    pub fn sealed(&mut self, key: &str) {
        if let Some(number) = self.reserved.remove(key) {
            self.numbers.entry(key.to_owned()).or_default().push(number);
            self.length += 1;
        }
    }
}
