//! The cursor policy: positions in merged lists, sealed so that clients cannot read or forge them.
//!
//! A cursor names a place by backend and offset within that backend's own list, so it stays
//! meaningful when another list changes, when the process restarts (with a configured key), and on
//! a replica with the same key and configuration.
//!
//! A list that is not kept here, that of tasks, is read as its client pages: there a cursor holds
//! the backend's own.
//!
//! Must not know: what is listed.

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::seal::Seal;

pub use fanlight_protocol::seal::{KeyError, Keys};

/// Bound to every cursor, so that a change of their form makes old ones unknown.
const PURPOSE: &[u8] = &[1];
const LONGEST: usize = 256;
/// The longest cursor of a backend that another can hold, in bytes.
const LONGEST_HELD: usize = 4 << 10;
/// Begins what a [`TasksPosition`] is sealed as, where a [`Position`] has its list.
const TASKS: u8 = u8::MAX;

/// A place in a merged list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Which list, as a small number of the caller's.
    pub list: u8,
    /// Which state of the list the client is reading.
    pub generation: u64,
    /// Which backend's part comes next: its place in the configuration.
    pub backend: u32,
    /// How many entries of that part the client already has.
    pub offset: u32,
}

/// A place in the merged list of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TasksPosition {
    /// Which backend's part goes on: its place in the configuration.
    pub backend: u32,
    /// The backend's own cursor: a JSON string, as written.
    pub cursor: Json,
}

/// Seals and opens cursors.
#[derive(Debug)]
pub struct CursorSeal(Seal);

impl CursorSeal {
    /// Seals with `keys`.
    pub fn new(keys: &Keys) -> Result<Self, KeyError> {
        Seal::new(keys, PURPOSE).map(Self)
    }

    /// The cursor for `position`; `None` if the cipher fails, which it has no reason to.
    #[must_use]
    pub fn seal(&self, position: Position) -> Option<String> {
        self.0.seal(&position.to_bytes())
    }

    /// The position that `cursor` stands for, if one of the keys sealed it.
    #[must_use]
    pub fn open(&self, cursor: &str) -> Option<Position> {
        if cursor.len() > LONGEST {
            return None;
        }
        Position::from_bytes(&self.0.open(cursor)?)
    }

    /// The cursor for a place in the list of tasks; `None` if the backend's own is too long.
    #[must_use]
    pub fn seal_tasks(&self, position: &TasksPosition) -> Option<String> {
        let own = position.cursor.bytes();
        let fits = own.len() <= LONGEST_HELD;
        fits.then(|| self.0.seal(&[&[TASKS][..], &position.backend.to_be_bytes(), own].concat()))?
    }

    /// The place in the list of tasks that `cursor` stands for, if this key sealed it for one.
    #[must_use]
    pub fn open_tasks(&self, cursor: &str) -> Option<TasksPosition> {
        if cursor.len() > 2 * LONGEST_HELD {
            return None;
        }
        let plain = self.0.open(cursor)?;
        let (backend, own) = plain.strip_prefix(&[TASKS])?.split_first_chunk()?;
        let cursor = Json::parse(Bytes::copy_from_slice(own), 1).ok()?;
        Some(TasksPosition { backend: u32::from_be_bytes(*backend), cursor })
    }
}

impl Position {
    const LEN: usize = 1 + 8 + 4 + 4;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields = [self.list]
            .into_iter()
            .chain(self.generation.to_be_bytes())
            .chain(self.backend.to_be_bytes())
            .chain(self.offset.to_be_bytes());
        bytes.iter_mut().zip(fields).for_each(|(slot, byte)| *slot = byte);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (list, rest) = bytes.split_first()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (backend, rest) = rest.split_first_chunk()?;
        let offset = rest.try_into().ok()?;
        Some(Self {
            list: *list,
            generation: u64::from_be_bytes(*generation),
            backend: u32::from_be_bytes(*backend),
            offset: u32::from_be_bytes(offset),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const POSITION: Position = Position { list: 3, generation: u64::MAX, backend: 7, offset: 1000 };

    #[test]
    fn opens_only_with_the_key_that_sealed() {
        let (a, b) = (CursorSeal::new(&Keys::default()).unwrap(), with(7));
        let cursor = a.seal(POSITION).unwrap();
        assert_eq!(a.open(&cursor), Some(POSITION));
        assert_eq!(b.open(&cursor), None);
        assert_eq!(with(7).open(&b.seal(POSITION).unwrap()), Some(POSITION));
    }

    fn with(key: u8) -> CursorSeal {
        CursorSeal::new(&Keys::new([[key; 32]])).unwrap()
    }

    #[test]
    fn a_backends_own_cursor_is_held_as_written() {
        let seal = CursorSeal::new(&Keys::default()).unwrap();
        let position = |cursor: Json| TasksPosition { backend: 7, cursor };
        for cursor in
            [Json::literal(r#""""#), Json::literal(r#""\u0041/=""#), Json::string(&"x".repeat(LONGEST_HELD - 2))]
        {
            let sealed = seal.seal_tasks(&position(cursor.clone())).unwrap();
            assert_eq!(seal.open_tasks(&sealed), Some(position(cursor)));
            assert!(seal.open(&sealed).is_none_or(|other| other.list == TASKS));
        }
        assert_eq!(seal.seal_tasks(&position(Json::string(&"x".repeat(LONGEST_HELD)))), None);
        assert_eq!(seal.open_tasks(&seal.seal(POSITION).unwrap()), None);
    }

    proptest! {
        #[test]
        fn refuses_forgeries(at in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
            let seal = with(1);
            let cursor = seal.seal(POSITION).unwrap();
            let at = at.index(cursor.len());
            let mut forged = cursor.clone();
            forged.replace_range(at..=at, &replacement);
            prop_assert!(forged == cursor || seal.open(&forged) != Some(POSITION) || at + 1 == cursor.len());
        }

        #[test]
        fn never_panics(cursor in ".{0,300}") {
            prop_assert_eq!((with(1).open(&cursor), with(1).open_tasks(&cursor)), (None, None));
        }
    }
}
