//! Handles that clients hold and send back: sealed, so that a client can neither read nor change them, and bound to their
//! holder, so that for everyone else they do not exist.

use std::sync::OnceLock;

use fanlight_protocol::seal::{KeyError, Keys, Seal};

use crate::endpoint::Holder;

/// Sealed into every handle, so that a change of their form makes old ones unknown.
const PURPOSE: &[u8] = b"handle 1";

/// What a handle stands for. A handle of one kind is never taken for one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A position in a merged list.
    Cursor,
    /// A position in the merged list of tasks, with a backend's own cursor.
    TaskCursor,
    /// A call that waits for its client's input.
    SuspendedCall,
    /// A call that is made again once the user has followed some URLs.
    UrlElicitation,
    /// The state of a server that has asked for input.
    ServerState,
}

impl HandleKind {
    const ALL: [Self; 5] =
        [Self::Cursor, Self::TaskCursor, Self::SuspendedCall, Self::UrlElicitation, Self::ServerState];

    /// Its number in a handle, which must never change.
    const fn number(self) -> u8 {
        match self {
            Self::Cursor => 0,
            Self::TaskCursor => 1,
            Self::SuspendedCall => 2,
            Self::UrlElicitation => 3,
            Self::ServerState => 4,
        }
    }
}

/// One run of one process: tells handles of this process from those of earlier runs and of other processes with the same
/// keys. What a handle stands for may live in the process alone that has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessRun([u8; 8]);

impl ProcessRun {
    /// This one, a random number that is chosen at the first use.
    fn current() -> Result<Self, KeyError> {
        static CURRENT: OnceLock<ProcessRun> = OnceLock::new();
        if let Some(current) = CURRENT.get() {
            return Ok(*current);
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| KeyError)?;
        Ok(*CURRENT.get_or_init(|| Self(random)))
    }
}

/// What a client has sent back, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// What it stands for.
    pub kind: HandleKind,
    /// Whether this run of this process has made it.
    pub is_of_this_run: bool,
    /// What was sealed.
    pub content: Vec<u8>,
}

/// Makes and opens handles.
#[derive(Debug)]
pub struct HandleSeal {
    seal: Seal,
    run: ProcessRun,
}

impl HandleSeal {
    /// Seals with `keys`.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers.
    pub fn new(keys: &Keys) -> Result<Self, KeyError> {
        Ok(Self { seal: Seal::new(keys, PURPOSE)?, run: ProcessRun::current()? })
    }

    /// A handle that only `holder` can use, as URL-safe text; `None` if the cipher fails, which it has no reason to.
    #[must_use]
    pub fn seal(&self, kind: HandleKind, content: &[u8], holder: &Holder) -> Option<String> {
        self.seal.seal_for(&[&[kind.number()][..], &self.run.0, content].concat(), &holder.to_bytes())
    }

    /// The handle that `text` is, if one of the keys has sealed it for `holder`. The caller bounds its length.
    #[must_use]
    pub fn open(&self, text: &str, holder: &Holder) -> Option<Handle> {
        let plain = self.seal.open_for(text, &holder.to_bytes())?;
        let (number, rest) = plain.split_first()?;
        let (run, content) = rest.split_first_chunk()?;
        let kind = HandleKind::ALL.into_iter().find(|kind| kind.number() == *number)?;
        Some(Handle { kind, is_of_this_run: *run == self.run.0, content: content.to_vec() })
    }

    /// The name of the key that seals: a hash that does not reveal the key.
    #[must_use]
    pub fn key_name(&self) -> &str {
        self.seal.name()
    }

    /// Whether one of the keys has this name.
    #[must_use]
    pub fn has_key(&self, name: &str) -> bool {
        self.seal.names().any(|known| known == name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Endpoint, Principal};

    const ANYONE: Holder = Holder::new(Principal::anonymous(), Endpoint::Default);

    fn with(keys: &[u8]) -> HandleSeal {
        HandleSeal::new(&Keys::new(keys.iter().map(|key| [*key; 32]))).unwrap()
    }

    #[test]
    fn handle_keeps_its_kind_and_content() {
        let seal = with(&[1]);
        for kind in HandleKind::ALL {
            let text = seal.seal(kind, b"content", &ANYONE).unwrap();
            let content = b"content".to_vec();
            assert_eq!(seal.open(&text, &ANYONE), Some(Handle { kind, is_of_this_run: true, content }));
        }
    }

    #[test]
    fn handle_opens_for_its_holder_alone() {
        let seal = with(&[1]);
        let ann = Holder::from(Principal::named("https://a.example", "ann"));
        let text = seal.seal(HandleKind::Cursor, b"", &ann).unwrap();
        let elsewhere = Holder::new(ann.principal().clone(), Endpoint::at("/mcp/readers"));
        let namesake = Principal::named("https://b.example", "ann").into();
        for other in [elsewhere, namesake, Principal::operator().into(), ANYONE] {
            assert_eq!(seal.open(&text, &other), None, "{other:?}");
        }
        assert!(seal.open(&text, &ann).is_some());
    }

    #[test]
    fn handle_of_another_run_is_told_apart() {
        let other = HandleSeal { run: ProcessRun([7; 8]), ..with(&[1]) };
        let text = other.seal(HandleKind::SuspendedCall, b"x", &ANYONE).unwrap();
        assert!(!with(&[1]).open(&text, &ANYONE).unwrap().is_of_this_run);
    }

    #[test]
    fn keys_are_known_by_their_names() {
        let (old, new) = (with(&[1]), with(&[2, 1]));
        assert!(new.has_key(old.key_name()) && !old.has_key(new.key_name()));
        assert!(new.open(&old.seal(HandleKind::Cursor, b"", &ANYONE).unwrap(), &ANYONE).is_some());
    }

    proptest! {
        #[test]
        fn handle_that_was_changed_is_refused(at in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
            let seal = with(&[1]);
            let text = seal.seal(HandleKind::Cursor, b"abc", &ANYONE).unwrap();
            let at = at.index(text.len());
            let mut forged = text.clone();
            forged.replace_range(at..=at, &replacement);
            prop_assert!(forged == text || at + 1 == text.len() || seal.open(&forged, &ANYONE).is_none());
        }

        #[test]
        fn any_text_is_no_handle(text in ".{0,300}") {
            prop_assert_eq!(with(&[1]).open(&text, &ANYONE), None);
        }
    }
}
