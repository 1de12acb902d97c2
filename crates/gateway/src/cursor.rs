//! The cursor policy: sealed positions in merged lists, which clients can neither read nor forge.
//!
//! A cursor names a position by a server's name and the offset in that server's own list. So it
//! stays valid when another list changes or servers are reordered. It also works after a restart
//! (with a configured key), and on a replica with the same key. Fanlight does not keep the list of
//! tasks, but reads it as the client pages. So a cursor of that list contains the server's own
//! cursor.
//!
//! The principal and the endpoint are part of the seal, so a cursor opens for no other principal
//! and at no other endpoint.

use bytes::Bytes;
use fanlight_canonical::{HandleKind, HandleSeal, Holder};
use fanlight_protocol::Json;

pub use fanlight_protocol::seal::{KeyError, Keys};

/// The longest server name that a cursor can contain, in bytes.
const LONGEST_NAME: usize = 1 << 10;
/// The longest server cursor that a cursor can contain, in bytes.
const LONGEST_HELD: usize = 4 << 10;
/// The longest cursor that is opened, in bytes: twice the longest content, more than Base64 adds.
const LONGEST: usize = 2 * (LONGEST_NAME + LONGEST_HELD);

/// A position in a merged list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The list, as a small number that the caller chooses.
    pub list: u8,
    /// The snapshot of the list that the client is reading.
    pub generation: u64,
    /// The name of the server whose part comes next.
    pub backend: Box<str>,
    /// How many entries of that part the client already has.
    pub offset: u32,
}

/// A position in the merged list of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TasksPosition {
    /// The name of the server whose part continues.
    pub backend: Box<str>,
    /// The server's own cursor: a JSON string, as the server wrote it.
    pub cursor: Json,
}

/// Seals and opens cursors.
#[derive(Debug)]
pub struct CursorSeal(HandleSeal);

impl CursorSeal {
    /// Creates a seal that uses `keys`.
    pub fn new(keys: &Keys) -> Result<Self, KeyError> {
        HandleSeal::new(keys).map(Self)
    }

    /// The cursor for `position`. Returns `None` if the server's name is too long, or if the cipher
    /// fails, which it has no reason to.
    pub fn seal(&self, position: &Position, holder: &Holder) -> Option<String> {
        let Position {
            list,
            generation,
            backend,
            offset,
        } = position;
        let numbers = [
            &[*list][..],
            &generation.to_be_bytes(),
            &offset.to_be_bytes(),
        ]
        .concat();
        let fits = backend.len() <= LONGEST_NAME;
        fits.then(|| {
            self.0.seal(
                HandleKind::Cursor,
                &[&numbers, backend.as_bytes()].concat(),
                holder,
            )
        })?
    }

    /// The position in `cursor`, if one of the keys sealed it for this holder.
    pub fn open(&self, cursor: &str, holder: &Holder) -> Option<Position> {
        let plain = self.open_of(HandleKind::Cursor, cursor, holder)?;
        let (list, rest) = plain.split_first()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (offset, name) = rest.split_first_chunk()?;
        Some(Position {
            list: *list,
            generation: u64::from_be_bytes(*generation),
            backend: std::str::from_utf8(name).ok()?.into(),
            offset: u32::from_be_bytes(*offset),
        })
    }

    /// The cursor for a position in the list of tasks; `None` if the server's own cursor is too
    /// long.
    pub fn seal_tasks(&self, position: &TasksPosition, holder: &Holder) -> Option<String> {
        let (name, own) = (position.backend.as_bytes(), position.cursor.bytes());
        let length = u16::try_from(name.len())
            .ok()
            .filter(|_| name.len() <= LONGEST_NAME)?;
        let fits = own.len() <= LONGEST_HELD;
        let plain = || [&length.to_be_bytes(), name, own].concat();
        fits.then(|| self.0.seal(HandleKind::TaskCursor, &plain(), holder))?
    }

    /// The position in the list of tasks in `cursor`, if one of the keys sealed it for this holder.
    #[must_use]
    pub fn open_tasks(&self, cursor: &str, holder: &Holder) -> Option<TasksPosition> {
        let plain = self.open_of(HandleKind::TaskCursor, cursor, holder)?;
        let (length, rest) = plain.split_first_chunk()?;
        let (name, own) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        let cursor = Json::parse(Bytes::copy_from_slice(own), 1).ok()?;
        Some(TasksPosition {
            backend: std::str::from_utf8(name).ok()?.into(),
            cursor,
        })
    }

    /// The content of a cursor, if it is of this kind.
    fn open_of(&self, kind: HandleKind, cursor: &str, holder: &Holder) -> Option<Vec<u8>> {
        let fits = cursor.len() <= LONGEST;
        let handle = fits.then(|| self.0.open(cursor, holder))?;
        handle
            .filter(|handle| handle.kind == kind)
            .map(|handle| handle.content)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use fanlight_canonical::{Endpoint, Principal};

    use super::*;

    const ANYONE: Holder = Holder::new(Principal::anonymous(), Endpoint::Default);

    fn position() -> Position {
        Position {
            list: 3,
            generation: u64::MAX,
            backend: "files".into(),
            offset: 1000,
        }
    }

    fn with(key: u8) -> CursorSeal {
        CursorSeal::new(&Keys::new([[key; 32]])).unwrap()
    }

    #[test]
    fn cursor_opens_only_with_the_key_that_sealed_it() {
        let (a, b) = (CursorSeal::new(&Keys::default()).unwrap(), with(7));
        let cursor = a.seal(&position(), &ANYONE).unwrap();
        assert_eq!(a.open(&cursor, &ANYONE), Some(position()));
        assert_eq!(b.open(&cursor, &ANYONE), None);
        // As after a restart or on another replica: the name still means the same server.
        assert_eq!(
            with(7).open(&b.seal(&position(), &ANYONE).unwrap(), &ANYONE),
            Some(position())
        );
        let long = Position {
            backend: "x".repeat(LONGEST_NAME + 1).into(),
            ..position()
        };
        assert_eq!(a.seal(&long, &ANYONE), None);
    }

    #[test]
    fn cursor_opens_for_its_principal_alone() {
        let seal = with(1);
        let [ann, bob] =
            ["ann", "bob"].map(|name| Holder::from(Principal::new("https://a.example", name)));
        let elsewhere = Holder::new(ann.principal().clone(), Endpoint::from_path("/mcp/readers"));
        let tasks = TasksPosition {
            backend: "files".into(),
            cursor: Json::literal(r#""c""#),
        };
        let cursor = seal.seal(&position(), &ann).unwrap();
        let of_tasks = seal.seal_tasks(&tasks, &ann).unwrap();
        assert_eq!(
            (seal.open(&cursor, &ann), seal.open_tasks(&of_tasks, &ann)),
            (Some(position()), Some(tasks))
        );
        for other in [
            bob,
            elsewhere,
            Principal::new("https://b.example", "ann").into(),
            ANYONE,
            Principal::operator().into(),
        ] {
            assert_eq!(
                (
                    seal.open(&cursor, &other),
                    seal.open_tasks(&of_tasks, &other)
                ),
                (None, None),
                "{other:?}"
            );
        }
    }

    #[test]
    fn cursor_of_a_backend_is_contained_as_written() {
        let seal = with(1);
        let position_at = |cursor: Json| TasksPosition {
            backend: "files".into(),
            cursor,
        };
        for cursor in [
            Json::literal(r#""""#),
            Json::literal(r#""\u0041/=""#),
            Json::string(&"x".repeat(LONGEST_HELD - 2)),
        ] {
            let sealed = seal
                .seal_tasks(&position_at(cursor.clone()), &ANYONE)
                .unwrap();
            assert_eq!(seal.open_tasks(&sealed, &ANYONE), Some(position_at(cursor)));
            assert_eq!(seal.open(&sealed, &ANYONE), None);
        }
        assert_eq!(
            seal.seal_tasks(
                &position_at(Json::string(&"x".repeat(LONGEST_HELD))),
                &ANYONE
            ),
            None
        );
        assert_eq!(
            seal.open_tasks(&seal.seal(&position(), &ANYONE).unwrap(), &ANYONE),
            None
        );
    }

    proptest! {
        #[test]
        fn cursor_that_was_changed_is_refused(at in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
            let seal = with(1);
            let cursor = seal.seal(&position(), &ANYONE).unwrap();
            let at = at.index(cursor.len());
            let mut forged = cursor.clone();
            forged.replace_range(at..=at, &replacement);
            prop_assert!(forged == cursor || seal.open(&forged, &ANYONE) != Some(position()) || at + 1 == cursor.len());
        }

        #[test]
        fn cursor_of_any_text_never_panics(cursor in ".{0,300}") {
            prop_assert_eq!((with(1).open(&cursor, &ANYONE), with(1).open_tasks(&cursor, &ANYONE)), (None, None));
        }
    }
}
