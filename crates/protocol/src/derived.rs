//! Values derived from a cached response. They are stored with it, so that each is computed once.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// Holds one value of each type, which all clones of a response share
/// ([`Response::cached`](crate::Response::cached)).
///
/// The types belong to the crates that derive the values. This crate does not know them.
#[derive(Debug, Default)]
pub struct Derived(Mutex<Vec<Arc<dyn Any + Send + Sync>>>);

impl Derived {
    /// The value of type `T`, if it has been derived.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let values = self.0.lock();
        values
            .iter()
            .find_map(|value| Arc::clone(value).downcast().ok())
    }

    /// The value of type `T`; `derive` computes it if it is missing. If two threads compute it at
    /// the same time, the first one to finish provides the value for both.
    pub fn get_or_insert_with<T: Any + Send + Sync>(&self, derive: impl FnOnce() -> T) -> Arc<T> {
        if let Some(value) = self.get() {
            return value;
        }
        let new = Arc::new(derive());
        let mut values = self.0.lock();
        if let Some(value) = values
            .iter()
            .find_map(|value| Arc::clone(value).downcast().ok())
        {
            return value;
        }
        values.push(Arc::<T>::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_derived_once_for_each_type() {
        let derived = Derived::default();
        assert_eq!(derived.get::<u8>(), None);
        assert_eq!(*derived.get_or_insert_with(|| 1_u8), 1);
        assert_eq!(*derived.get_or_insert_with(|| 2_u8), 1);
        assert_eq!(*derived.get_or_insert_with(|| "text"), "text");
        assert_eq!(derived.get::<u8>().as_deref(), Some(&1));
    }
}
