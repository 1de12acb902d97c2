//! Handles that clients hold and send back. They are sealed, so a client can neither read nor
//! change them. They are bound to their holder, so they do not exist for anyone else.
//!
//! Every id that Fanlight gives out is a handle, with two exceptions: ids that servers made, which
//! clients get unchanged, and ids of subscriptions, which clients choose. A handle for state that a
//! process keeps says which process that is.

use std::fmt;
use std::sync::OnceLock;

use fanlight_protocol::seal::{KeyError, Keys, Seal, Tag};

use crate::caller::Holder;

/// Sealed into every handle, so that a change of the format invalidates old ones.
const PURPOSE: &[u8] = b"handle 1";
/// The number of random bytes in a handle for state that a process keeps.
const RANDOM: usize = 16;
/// The length of such a handle as text: nonce, kind, run, random bytes and the seal's tag, in
/// Base64.
const FRESH: usize = ((12 + 1 + 8 + RANDOM + 16) * 4).div_ceil(3);
/// The prefix of ids of tasks that Fanlight makes, which distinguishes them from servers' ids.
const TASK: &str = "fanlight-task-";

/// The kind of a handle. Handles of one kind are never accepted as another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// A position in a merged list.
    Cursor,
    /// A position in the merged list of tasks, with a server's own cursor.
    TaskCursor,
    /// A call that waits for its client's input.
    SuspendedCall,
    /// A call that is made again after the user has visited some URLs.
    UrlElicitation,
    /// The state of a server that has asked for input.
    ServerState,
    /// A session of Streamable HTTP.
    Session,
    /// A session of the HTTP+SSE transport.
    SseSession,
    /// A task that Fanlight made itself.
    Task,
    /// An event on a stream of a session.
    Event,
    /// A result that is kept whole.
    Result,
}

impl HandleKind {
    const ALL: [Self; 10] = [
        Self::Cursor,
        Self::TaskCursor,
        Self::SuspendedCall,
        Self::UrlElicitation,
        Self::ServerState,
        Self::Session,
        Self::SseSession,
        Self::Task,
        Self::Event,
        Self::Result,
    ];

    /// The kind's number in a handle, which must never change.
    const fn number(self) -> u8 {
        match self {
            Self::Cursor => 0,
            Self::TaskCursor => 1,
            Self::SuspendedCall => 2,
            Self::UrlElicitation => 3,
            Self::ServerState => 4,
            Self::Session => 5,
            Self::SseSession => 6,
            Self::Task => 7,
            Self::Event => 8,
            Self::Result => 9,
        }
    }
}

/// One run of one process, among all replicas with the same keys. The state behind a handle may
/// exist only in the run that made it. A restarted replica is another run, so this identifies both
/// the replica and its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessRun([u8; 8]);

impl ProcessRun {
    /// The current run: a random number that is chosen at the first use.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers.
    pub fn current() -> Result<Self, KeyError> {
        static CURRENT: OnceLock<ProcessRun> = OnceLock::new();
        if let Some(current) = CURRENT.get() {
            return Ok(*current);
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| KeyError)?;
        Ok(*CURRENT.get_or_init(|| Self(random)))
    }

    /// The run with these bytes.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// Parses the text form of a run.
    pub fn parse(text: &str) -> Option<Self> {
        let number = u64::from_str_radix(text, 16).ok()?;
        Some(Self(number.to_be_bytes())).filter(|run| run.to_string() == text)
    }

    /// The run's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for ProcessRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ProcessRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The process that keeps the state behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// This run of this process has the state, if the state still exists.
    ThisRun,
    /// Another run, either an earlier one of this process or one of another replica with the same
    /// keys.
    Another(ProcessRun),
    /// No run: the text is not a handle of this kind and holder.
    Nobody,
}

/// An opened handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The kind of the handle.
    pub kind: HandleKind,
    /// The run that made it; `None` for this run.
    pub other_run: Option<ProcessRun>,
    /// The sealed content.
    pub content: Vec<u8>,
}

/// Makes and opens handles.
#[derive(Debug)]
pub struct HandleSeal {
    seal: Seal,
    run: ProcessRun,
}

impl HandleSeal {
    /// Creates a seal that uses `keys`.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers.
    pub fn new(keys: &Keys) -> Result<Self, KeyError> {
        Ok(Self {
            seal: Seal::new(keys, PURPOSE)?,
            run: ProcessRun::current()?,
        })
    }

    /// Makes a handle that only `holder` can use, as URL-safe text. `None` if the cipher fails,
    /// which it has no reason to.
    pub fn seal(&self, kind: HandleKind, content: &[u8], holder: &Holder) -> Option<String> {
        self.seal.seal_for(
            &[&[kind.number()][..], &self.run.0, content].concat(),
            &holder.to_bytes(),
        )
    }

    /// Opens `text` if one of the keys sealed it for `holder`. The caller limits its length.
    #[must_use]
    pub fn open(&self, text: &str, holder: &Holder) -> Option<Handle> {
        let plain = self.seal.open_for(text, &holder.to_bytes())?;
        let (number, rest) = plain.split_first()?;
        let (run, content) = rest.split_first_chunk()?;
        let kind = HandleKind::ALL
            .into_iter()
            .find(|kind| kind.number() == *number)?;
        let other_run = Some(ProcessRun(*run)).filter(|run| *run != self.run);
        Some(Handle {
            kind,
            other_run,
            content: content.to_vec(),
        })
    }

    /// Makes a random handle for state that this process keeps under the handle itself. All have
    /// the same size.
    pub fn random_handle(&self, kind: HandleKind, holder: &Holder) -> Option<String> {
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random).ok()?;
        self.seal(kind, &random, holder)
    }

    /// The process that keeps the state behind `text`, if [`HandleSeal::random_handle`] made it for
    /// `holder`. Call this only if this process has no such state; handles that it knows need not
    /// be opened.
    #[must_use]
    pub fn keeper(&self, kind: HandleKind, text: &str, holder: &Holder) -> Keeper {
        let handle = (text.len() == FRESH)
            .then(|| self.open(text, holder))
            .flatten();
        match handle.filter(|handle| handle.kind == kind) {
            Some(handle) => handle.other_run.map_or(Keeper::ThisRun, Keeper::Another),
            None => Keeper::Nobody,
        }
    }

    /// Makes the id of a task that this process keeps.
    pub fn fresh_task(&self, holder: &Holder) -> Option<String> {
        Some(format!(
            "{TASK}{}",
            self.random_handle(HandleKind::Task, holder)?
        ))
    }

    /// Whether the id of a task has the form of those that Fanlight makes.
    pub fn is_task(id: &str) -> bool {
        id.starts_with(TASK)
    }

    /// The process that keeps the task with this id, if Fanlight made it for `holder`.
    #[must_use]
    pub fn keeper_of_task(&self, id: &str, holder: &Holder) -> Keeper {
        id.strip_prefix(TASK).map_or(Keeper::Nobody, |handle| {
            self.keeper(HandleKind::Task, handle, holder)
        })
    }

    /// A tag that distinguishes ids under the handle `of` from all ids under other handles, kinds,
    /// holders and runs. It is for ids that are too many to be sealed one by one, and are valid
    /// only together with the handle.
    pub fn tag(&self, kind: HandleKind, of: &str, holder: &Holder) -> Tag {
        self.seal.tag_for(
            &[&[kind.number()][..], &self.run.0, of.as_bytes()].concat(),
            &holder.to_bytes(),
        )
    }

    /// The name of the sealing key: a hash that does not reveal the key.
    pub fn key_name(&self) -> &str {
        self.seal.name()
    }

    /// Whether one of the keys has this name.
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
            assert_eq!(
                seal.open(&text, &ANYONE),
                Some(Handle {
                    kind,
                    other_run: None,
                    content
                })
            );
        }
    }

    #[test]
    fn handle_opens_for_its_holder_alone() {
        let seal = with(&[1]);
        let ann = Holder::from(Principal::new("https://a.example", "ann"));
        let text = seal.seal(HandleKind::Cursor, b"", &ann).unwrap();
        let elsewhere = Holder::new(ann.principal().clone(), Endpoint::from_path("/mcp/readers"));
        let namesake = Principal::new("https://b.example", "ann").into();
        for other in [elsewhere, namesake, Principal::operator().into(), ANYONE] {
            assert_eq!(seal.open(&text, &other), None, "{other:?}");
        }
        assert!(seal.open(&text, &ann).is_some());
    }

    #[test]
    fn handle_of_another_run_is_told_apart() {
        let other = HandleSeal {
            run: ProcessRun([7; 8]),
            ..with(&[1])
        };
        let text = other
            .seal(HandleKind::SuspendedCall, b"x", &ANYONE)
            .unwrap();
        assert_eq!(
            with(&[1]).open(&text, &ANYONE).unwrap().other_run,
            Some(ProcessRun([7; 8]))
        );
    }

    #[test]
    fn keeper_is_told_to_the_holder_and_for_the_kind_alone() {
        let (seal, ann) = (
            with(&[1]),
            Holder::from(Principal::new("https://a.example", "ann")),
        );
        let id = seal.random_handle(HandleKind::Session, &ann).unwrap();
        let of = |text: &str, kind, holder| seal.keeper(kind, text, holder);
        assert_eq!(
            (id.len(), of(&id, HandleKind::Session, &ann)),
            (FRESH, Keeper::ThisRun)
        );
        let earlier = HandleSeal {
            run: ProcessRun([7; 8]),
            ..with(&[1])
        }
        .random_handle(HandleKind::Session, &ann)
        .unwrap();
        assert_eq!(
            of(&earlier, HandleKind::Session, &ann),
            Keeper::Another(ProcessRun([7; 8]))
        );
        let with_other_key = with(&[2]).random_handle(HandleKind::Session, &ann).unwrap();
        for (text, kind, holder) in [
            (&id, HandleKind::SseSession, &ann),
            (&id, HandleKind::Session, &ANYONE),
            (&earlier, HandleKind::Session, &ANYONE),
            (&with_other_key, HandleKind::Session, &ann),
            (&format!("{id}A"), HandleKind::Session, &ann),
            (&String::new(), HandleKind::Session, &ann),
        ] {
            assert_eq!(
                of(text, kind, holder),
                Keeper::Nobody,
                "{text} {kind:?} {holder:?}"
            );
        }
    }

    #[test]
    fn task_names_its_keeper_to_its_holder_alone() {
        let (seal, ann) = (
            with(&[1]),
            Holder::from(Principal::new("https://a.example", "ann")),
        );
        let earlier = HandleSeal {
            run: ProcessRun([7; 8]),
            ..with(&[1])
        }
        .fresh_task(&ann)
        .unwrap();
        assert!(HandleSeal::is_task(&earlier));
        assert_eq!(
            seal.keeper_of_task(&earlier, &ann),
            Keeper::Another(ProcessRun([7; 8]))
        );
        assert_eq!(
            seal.keeper_of_task(&seal.fresh_task(&ann).unwrap(), &ann),
            Keeper::ThisRun
        );
        let session = format!(
            "{TASK}{}",
            seal.random_handle(HandleKind::Session, &ann).unwrap()
        );
        let bare = earlier.strip_prefix(TASK).unwrap();
        for (id, holder) in [
            (&*earlier, &ANYONE),
            (bare, &ann),
            (TASK, &ann),
            (&*session, &ann),
        ] {
            assert_eq!(seal.keeper_of_task(id, holder), Keeper::Nobody, "{id}");
        }
    }

    #[test]
    fn tag_differs_with_kind_handle_holder_and_run() {
        let seal = with(&[1]);
        let tag = seal.tag(HandleKind::Event, "s", &ANYONE);
        assert_eq!(seal.tag(HandleKind::Event, "s", &ANYONE), tag);
        let other_run = HandleSeal {
            run: ProcessRun([7; 8]),
            ..with(&[1])
        };
        for other in [
            seal.tag(HandleKind::Session, "s", &ANYONE),
            seal.tag(HandleKind::Event, "t", &ANYONE),
            seal.tag(HandleKind::Event, "s", &Principal::operator().into()),
            other_run.tag(HandleKind::Event, "s", &ANYONE),
        ] {
            assert_ne!(other, tag);
        }
    }

    #[test]
    fn keys_are_known_by_their_names() {
        let (old, new) = (with(&[1]), with(&[2, 1]));
        assert!(new.has_key(old.key_name()) && !old.has_key(new.key_name()));
        assert!(
            new.open(
                &old.seal(HandleKind::Cursor, b"", &ANYONE).unwrap(),
                &ANYONE
            )
            .is_some()
        );
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
