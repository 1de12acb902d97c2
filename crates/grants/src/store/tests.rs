//! Tests of the store on real files.

use std::fmt;
use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Mutex;

use async_trait::async_trait;
use fanlight_protocol::epoch;
use serde::Deserialize;
use tempfile::TempDir;

use super::*;
use crate::sealing_key::NoKeyring;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    issuer: String,
    text: String,
    expires: Option<u64>,
}

impl Record for Note {
    const KIND: Kind = Kind::Grant;

    fn issuer(&self) -> &str {
        &self.issuer
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Begun(Note);

impl Record for Begun {
    const KIND: Kind = Kind::SignIn;

    fn issuer(&self) -> &str {
        &self.0.issuer
    }

    fn useless_after(&self) -> Option<u64> {
        self.0.expires
    }
}

fn note(text: &str) -> Note {
    Note {
        issuer: "https://as.example".into(),
        text: text.into(),
        expires: None,
    }
}

fn keys(keys: &[u8]) -> Keys {
    Keys::new(keys.iter().map(|key| [*key; 32]))
}

fn open(folder: &TempDir, with: &[u8]) -> Store {
    Store::open(
        &Folder::open(&folder.path().join("state")).unwrap(),
        &keys(with),
        &NoKeyring,
    )
    .unwrap()
}

fn file(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("state/grants.redb")
}

fn database(store: &Store) -> &Database {
    match &store.0.place {
        Place::File { database, .. } => database,
        Place::Common(_) => panic!("it is in a file"),
    }
}

fn ann() -> Owner {
    Owner::new(b"ann", "notes")
}

#[tokio::test]
async fn record_is_for_its_principal_and_server_alone() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    store.put(&ann(), &note("secret")).await.unwrap();
    assert_eq!(
        store.get::<Note>(&ann()).await.unwrap(),
        Some(note("secret"))
    );
    for other in [
        Owner::new(b"bob", "notes"),
        Owner::new(b"ann", "other"),
        Owner::new(b"annnotes", ""),
    ] {
        assert_eq!(store.get::<Note>(&other).await.unwrap(), None, "{other:?}");
    }
    assert_eq!(store.list::<Note>(b"ann").await.unwrap().len(), 1);
    assert!(store.list::<Note>(b"bob").await.unwrap().is_empty());
    assert_eq!(
        fs::metadata(file(&folder)).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[tokio::test]
async fn file_from_before_a_removal_does_not_bring_the_record_back() {
    let folder = TempDir::new().unwrap();
    let bob = Owner::new(b"bob", "notes");
    let (ann_again, bob_again) = (note("again"), note("bob's"));
    let store = open(&folder, &[1]);
    store.put(&ann(), &note("first")).await.unwrap();
    store.put(&bob, &bob_again).await.unwrap();
    let before = fs::read(file(&folder)).unwrap();
    assert_eq!(
        store.take::<Note>(&ann()).await.unwrap(),
        Some(note("first"))
    );
    drop(store);
    fs::write(file(&folder), &before).unwrap();
    let store = open(&folder, &[1]);
    assert_eq!(store.get::<Note>(&ann()).await.unwrap(), None);
    assert!(store.list::<Note>(b"ann").await.unwrap().is_empty());
    assert_eq!(store.get::<Note>(&bob).await.unwrap(), Some(bob_again));
    // Another process learns of it.
    let other = open(&folder, &[1]);
    store.put(&ann(), &ann_again).await.unwrap();
    assert_eq!(other.get::<Note>(&ann()).await.unwrap(), Some(ann_again));
    store.purge(None).await.unwrap();
    drop(other);
    drop(store);
    fs::write(file(&folder), &before).unwrap();
    let store = open(&folder, &[1]);
    assert_eq!(store.get::<Note>(&bob).await.unwrap(), None);
}

#[tokio::test]
async fn entry_in_common_from_before_a_removal_does_not_come_back() {
    let (entry, one, other) = in_common(Box::new(|_| {}));
    one.put(&ann(), &note("first")).await.unwrap();
    let before = entry.entry.lock().unwrap().clone();
    one.take::<Note>(&ann()).await.unwrap();
    let later = || Store::open_common(Arc::<OneEntry>::clone(&entry), &keys(&[1])).unwrap();
    *entry.entry.lock().unwrap() = before;
    for store in [&one, &other, &later()] {
        assert_eq!(store.get::<Note>(&ann()).await.unwrap(), None);
    }
    // Processes that know of the removal are not deceived by the epoch's removal either.
    *entry.epoch.lock().unwrap() = None;
    for store in [&one, &other] {
        assert_eq!(store.get::<Note>(&ann()).await.unwrap(), None);
    }
    one.take::<Note>(&ann()).await.unwrap();
    one.put(&ann(), &note("again")).await.unwrap();
    for store in [&one, &other, &later()] {
        assert_eq!(
            store.get::<Note>(&ann()).await.unwrap(),
            Some(note("again"))
        );
    }
}

#[tokio::test]
async fn record_that_is_moved_in_the_file_does_not_open() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    store.put(&ann(), &note("secret")).await.unwrap();
    let entry = || {
        database(&store)
            .get(Kind::Grant, &ann().name())
            .unwrap()
            .unwrap()
    };
    let place = |kind, name: &str, entry: Entry| {
        database(&store)
            .change(kind, name, |_| (Change::Put(entry), ()))
            .unwrap();
    };
    for other in [Owner::new(b"bob", "notes"), Owner::new(b"ann", "other")] {
        place(Kind::Grant, &other.name(), entry());
        assert_eq!(store.get::<Note>(&other).await.unwrap(), None, "{other:?}");
    }
    let issuer = "https://evil.example".to_owned();
    place(Kind::Grant, &ann().name(), Entry { issuer, ..entry() });
    assert_eq!(store.get::<Note>(&ann()).await.unwrap(), None);
    let bytes = fs::read(file(&folder)).unwrap();
    assert!(
        !bytes.windows(6).any(|part| part == b"secret"),
        "the file shows what is sealed"
    );
}

#[tokio::test]
async fn old_keys_open_and_the_new_one_seals() {
    let folder = TempDir::new().unwrap();
    open(&folder, &[])
        .put(&ann(), &note("of the folder"))
        .await
        .unwrap();
    let store = open(&folder, &[1]);
    assert_eq!(
        store.get::<Note>(&ann()).await.unwrap(),
        Some(note("of the folder"))
    );
    store.put(&ann(), &note("of 1")).await.unwrap();
    drop(store);
    assert_eq!(open(&folder, &[]).get::<Note>(&ann()).await.unwrap(), None);
    let store = open(&folder, &[2, 1]);
    assert_eq!(store.get::<Note>(&ann()).await.unwrap(), Some(note("of 1")));
    store.put(&ann(), &note("of 2")).await.unwrap();
    drop(store);
    assert_eq!(open(&folder, &[1]).get::<Note>(&ann()).await.unwrap(), None);
    assert_eq!(
        open(&folder, &[2]).get::<Note>(&ann()).await.unwrap(),
        Some(note("of 2"))
    );
}

#[tokio::test]
async fn damaged_file_is_set_aside() {
    let folder = TempDir::new().unwrap();
    open(&folder, &[1]).put(&ann(), &note("x")).await.unwrap();
    let length = fs::metadata(file(&folder)).unwrap().len();
    let damages: [&dyn Fn(&mut fs::File); 4] = [
        &|file| file.write_all(&[0; 8192]).unwrap(),
        &|file| {
            file.write_all(&vec![0xff; usize::try_from(length).unwrap()])
                .unwrap();
        },
        &|file| file.set_len(5000).unwrap(),
        &|file| {
            file.set_len(0).unwrap();
            file.write_all(b"not a database").unwrap();
        },
    ];
    for (at, damage) in damages.iter().enumerate() {
        let mut damaged = fs::OpenOptions::new()
            .write(true)
            .open(file(&folder))
            .unwrap();
        damaged.seek(SeekFrom::Start(0)).unwrap();
        damage(&mut damaged);
        let store = open(&folder, &[1]);
        assert_eq!(
            store.get::<Note>(&ann()).await.unwrap(),
            None,
            "damage {at}"
        );
        store.put(&ann(), &note("again")).await.unwrap();
        drop(store);
        assert_eq!(
            open(&folder, &[1]).get::<Note>(&ann()).await.unwrap(),
            Some(note("again")),
            "damage {at}"
        );
    }
    let aside = fs::read_dir(folder.path().join("state")).unwrap().flatten();
    assert!(
        aside
            .filter(|entry| entry.file_name().to_string_lossy().contains("damaged"))
            .count()
            >= 1
    );
}

#[tokio::test]
async fn what_was_kept_is_there_after_a_process_ends_without_closing() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    store.put(&ann(), &note("rotated")).await.unwrap();
    // A copy of the current file is what a killed process leaves behind.
    let killed = TempDir::new().unwrap();
    fs::create_dir(killed.path().join("state")).unwrap();
    fs::set_permissions(
        killed.path().join("state"),
        fs::Permissions::from_mode(0o700),
    )
    .unwrap();
    for name in ["grants.redb", "key"] {
        fs::copy(
            folder.path().join("state").join(name),
            killed.path().join("state").join(name),
        )
        .unwrap();
    }
    assert_eq!(
        open(&killed, &[1]).get::<Note>(&ann()).await.unwrap(),
        Some(note("rotated"))
    );
}

#[tokio::test]
async fn file_that_others_can_read_is_not_used() {
    let folder = TempDir::new().unwrap();
    drop(open(&folder, &[1]));
    fs::set_permissions(file(&folder), fs::Permissions::from_mode(0o644)).unwrap();
    let state = Folder::open(&folder.path().join("state")).unwrap();
    let error = Store::open(&state, &keys(&[1]), &NoKeyring)
        .unwrap_err()
        .to_string();
    assert!(error.contains("accessible to other users"), "{error}");
}

#[tokio::test]
async fn record_is_taken_once() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (open(&folder, &[1]), open(&folder, &[1]));
    let state = Owner::nobody("state");
    one.put(&state, &Begun(note("x"))).await.unwrap();
    let (first, second) = tokio::join!(one.take::<Begun>(&state), other.take::<Begun>(&state));
    let taken = [first.unwrap(), second.unwrap()];
    assert_eq!(taken.iter().flatten().count(), 1, "{taken:?}");
}

#[tokio::test]
async fn useless_records_make_room() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    let begun = |expires| {
        Begun(Note {
            expires,
            ..note("x")
        })
    };
    store
        .put(&Owner::nobody("old"), &begun(Some(1)))
        .await
        .unwrap();
    store
        .put(&Owner::nobody("new"), &begun(Some(u64::MAX)))
        .await
        .unwrap();
    let names: Vec<_> = store
        .export::<Begun>()
        .await
        .unwrap()
        .into_iter()
        .map(|one| one.owner)
        .collect();
    assert_eq!(names, [Owner::nobody("new")]);
}

#[tokio::test]
async fn one_user_takes_no_place_of_others_sign_ins() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    let (most, soon) = (Kind::SignIn.most_of_one(), epoch::seconds() + 600);
    let begun = |expires| {
        Begun(Note {
            expires: Some(expires),
            ..note("x")
        })
    };
    store
        .put(&Owner::new(b"ann", "first"), &begun(soon))
        .await
        .unwrap();
    for at in 0..most + 2 {
        store
            .put(&Owner::new(b"bob", &at.to_string()), &begun(soon + at))
            .await
            .unwrap();
    }
    let of = async |user: &[u8]| store.list::<Begun>(user).await.unwrap().len();
    assert_eq!(
        (of(b"ann").await, of(b"bob").await),
        (1, usize::try_from(most).unwrap())
    );
    let is_there = async |name| {
        store
            .get::<Begun>(&Owner::new(b"bob", name))
            .await
            .unwrap()
            .is_some()
    };
    assert_eq!(
        (
            is_there("0").await,
            is_there("1").await,
            is_there("2").await
        ),
        (false, false, true)
    );
}

#[tokio::test]
async fn nothing_is_written_where_nothing_changes() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    store.put(&ann(), &note("x")).await.unwrap();
    let (minute, before) = (Duration::from_secs(60), fs::read(file(&folder)).unwrap());
    for name in ["a", "b"] {
        assert_eq!(
            store.take::<Begun>(&Owner::nobody(name)).await.unwrap(),
            None
        );
        assert!(matches!(
            store
                .lease::<Note>(&Owner::nobody(name), minute)
                .await
                .unwrap(),
            Leased::Nothing
        ));
    }
    assert!(
        fs::read(file(&folder)).unwrap() == before,
        "the file has changed"
    );
    store.put(&ann(), &note("y")).await.unwrap();
    assert_eq!(
        open(&folder, &[1]).get::<Note>(&ann()).await.unwrap(),
        Some(note("y"))
    );
}

#[tokio::test]
async fn one_process_has_a_leased_record() {
    let folder = TempDir::new().unwrap();
    let (one, other) = (open(&folder, &[1]), open(&folder, &[1]));
    let lease = async |store: &Store| {
        store
            .lease::<Note>(&ann(), Duration::from_secs(60))
            .await
            .unwrap()
    };
    assert!(matches!(lease(&one).await, Leased::Nothing));
    one.put(&ann(), &note("x")).await.unwrap();
    let Leased::Ours(record, first) = lease(&one).await else {
        panic!("it is leased")
    };
    assert_eq!(record, note("x"));
    assert!(matches!(lease(&other).await, Leased::Others));
    assert!(
        one.end_lease::<Note>(&ann(), first, LeaseOutcome::Keep)
            .await
            .unwrap()
    );
    let Leased::Ours(_, second) = lease(&other).await else {
        panic!("it is leased")
    };
    assert!(
        !one.end_lease(&ann(), first, LeaseOutcome::Replace(&note("late")))
            .await
            .unwrap()
    );
    assert!(
        other
            .end_lease(&ann(), second, LeaseOutcome::Replace(&note("y")))
            .await
            .unwrap()
    );
    assert_eq!(one.get::<Note>(&ann()).await.unwrap(), Some(note("y")));
}

#[tokio::test]
async fn record_that_was_replaced_or_removed_ends_a_lease() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    let lease = async || match store
        .lease::<Note>(&ann(), Duration::from_secs(60))
        .await
        .unwrap()
    {
        Leased::Ours(_, lease) => lease,
        other => panic!("{other:?}"),
    };
    store.put(&ann(), &note("x")).await.unwrap();
    let first = lease().await;
    store.put(&ann(), &note("signed in anew")).await.unwrap();
    assert!(
        !store
            .end_lease(&ann(), first, LeaseOutcome::Replace(&note("renewed")))
            .await
            .unwrap()
    );
    assert!(
        !store
            .end_lease::<Note>(&ann(), first, LeaseOutcome::Remove)
            .await
            .unwrap()
    );
    assert_eq!(
        store.get::<Note>(&ann()).await.unwrap(),
        Some(note("signed in anew"))
    );
    let second = lease().await;
    store.take::<Note>(&ann()).await.unwrap();
    assert!(
        !store
            .end_lease(&ann(), second, LeaseOutcome::Replace(&note("renewed")))
            .await
            .unwrap()
    );
    assert_eq!(store.get::<Note>(&ann()).await.unwrap(), None);
}

#[tokio::test]
async fn sizes_and_numbers_are_bounded() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder, &[1]);
    let large = store.put(&ann(), &note(&"x".repeat(128 << 10))).await;
    assert!(matches!(large, Err(StoreError::TooLarge)), "{large:?}");
    let most = Kind::Grant.most_of_one();
    for at in 0..most {
        store
            .put(&Owner::new(b"bob", &at.to_string()), &note("x"))
            .await
            .unwrap();
    }
    let full = store.put(&Owner::new(b"bob", "more"), &note("x")).await;
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    // Existing records can be replaced, and other owners have their own limit.
    store
        .put(&Owner::new(b"bob", "0"), &note("y"))
        .await
        .unwrap();
    store.put(&ann(), &note("x")).await.unwrap();
    assert_eq!(
        u64::try_from(store.purge(Some(b"bob")).await.unwrap()).unwrap(),
        most
    );
    assert_eq!(store.get::<Note>(&ann()).await.unwrap(), Some(note("x")));
    assert_eq!(store.purge(None).await.unwrap(), 1);
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OfServer(String);

impl Record for OfServer {
    const KIND: Kind = Kind::Lists;

    fn issuer(&self) -> &str {
        ""
    }
}

#[tokio::test]
async fn lists_of_servers_may_be_long_and_are_not_taken_for_something_of_users() {
    let folder = TempDir::new().unwrap();
    let (state, server) = (folder.path().join("state"), Owner::nobody("files"));
    assert!(!holds_users(&state));
    let store = open(&folder, &[1]);
    let long = OfServer("x".repeat(1 << 20));
    store.put(&server, &long).await.unwrap();
    assert_eq!(store.get_blocking::<OfServer>(&server).unwrap(), Some(long));
    assert_eq!(
        store
            .get_blocking::<OfServer>(&Owner::nobody("other"))
            .unwrap(),
        None
    );
    assert!(!holds_users(&state));
    store.put(&ann(), &note("secret")).await.unwrap();
    assert!(holds_users(&state));
    assert_eq!(store.purge(None).await.unwrap(), 2);
    assert!(!holds_users(&state));
    fs::write(file(&folder), vec![0xff; 20_000]).unwrap();
    fs::set_permissions(file(&folder), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(holds_users(&state), "what cannot be read may be of users");
}

/// The change that another process makes to an entry in between.
type Interference = Box<dyn FnMut(&mut Option<Vec<u8>>) + Send>;

/// An entry in common with other processes, and the change between reading and replacing it.
struct OneEntry {
    entry: Mutex<Option<Vec<u8>>>,
    epoch: Mutex<Option<Vec<u8>>>,
    meanwhile: Mutex<Interference>,
}

impl fmt::Debug for OneEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneEntry")
    }
}

#[async_trait]
impl CommonEntries for OneEntry {
    async fn get(&self, kind: Kind, _: &str) -> Result<Option<Vec<u8>>, CommonError> {
        let entry = match kind {
            Kind::Epoch => &self.epoch,
            _ => &self.entry,
        };
        Ok(entry.lock().unwrap().clone())
    }

    async fn list(
        &self,
        _: Kind,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<(String, Vec<u8>)>, CommonError> {
        Ok(Vec::new())
    }

    async fn exchange(
        &self,
        kind: Kind,
        _: &str,
        exchange: Exchange<'_>,
    ) -> Result<Exchanged, CommonError> {
        if kind == Kind::Epoch {
            *self.epoch.lock().unwrap() = exchange.new.map(<[u8]>::to_vec);
            return Ok(Exchanged::Done);
        }
        let mut entry = self.entry.lock().unwrap();
        self.meanwhile.lock().unwrap()(&mut entry);
        if entry.as_deref() != exchange.old {
            return Ok(Exchanged::Changed);
        }
        *entry = exchange.new.map(<[u8]>::to_vec);
        Ok(Exchanged::Done)
    }

    async fn remove_all(&self, _: Kind, _: Option<&str>) -> Result<usize, CommonError> {
        Ok(0)
    }

    async fn now(&self, _: Kind, _: &str) -> Result<u64, CommonError> {
        Ok(0)
    }

    fn stamp(&self) -> Stamp {
        None
    }

    fn is_away(&self) -> bool {
        false
    }
}

/// Two processes with one entry in common.
fn in_common(meanwhile: Interference) -> (Arc<OneEntry>, Store, Store) {
    let entry = Arc::new(OneEntry {
        entry: Mutex::default(),
        epoch: Mutex::default(),
        meanwhile: Mutex::new(meanwhile),
    });
    let store = || Store::open_common(Arc::<OneEntry>::clone(&entry), &keys(&[1])).unwrap();
    let (one, other) = (store(), store());
    (entry, one, other)
}

#[tokio::test]
async fn grant_in_common_is_leased_to_one_process_and_replaced_by_it_alone() {
    let (_, one, other) = in_common(Box::new(|_| {}));
    one.put(&ann(), &note("first")).await.unwrap();
    let (minute, renewed) = (Duration::from_secs(60), note("renewed"));
    let Leased::Ours(_, lease) = one.lease::<Note>(&ann(), minute).await.unwrap() else {
        panic!("no lease")
    };
    assert!(matches!(
        other.lease::<Note>(&ann(), minute).await.unwrap(),
        Leased::Others
    ));
    // The user signs in again meanwhile, so the renewed record is useless.
    other.put(&ann(), &note("signed in anew")).await.unwrap();
    assert!(
        !one.end_lease(&ann(), lease, LeaseOutcome::Replace(&renewed))
            .await
            .unwrap()
    );
    assert_eq!(
        one.get::<Note>(&ann()).await.unwrap(),
        Some(note("signed in anew"))
    );
}

#[tokio::test]
async fn change_is_decided_anew_when_another_process_was_faster() {
    let mut faster = 2;
    let (entry, one, _) = in_common(Box::new(move |entry| {
        if faster > 0 {
            faster -= 1;
            // Another process has removed the entry, or written something unreadable.
            *entry = None;
        }
    }));
    *entry.entry.lock().unwrap() = Some(b"not what is read".to_vec());
    assert!(matches!(
        one.get::<Note>(&ann()).await,
        Err(StoreError::Damaged)
    ));
    *entry.entry.lock().unwrap() = None;
    one.put(&ann(), &note("first")).await.unwrap();
    assert_eq!(
        one.take::<Note>(&ann()).await.unwrap(),
        None,
        "another process has taken it"
    );
}

#[tokio::test]
async fn entry_that_others_change_all_the_time_is_given_up() {
    let mut number = 0_u64;
    let (_, one, _) = in_common(Box::new(move |entry| {
        number += 1;
        *entry = Some(
            serde_json::to_vec(
                &serde_json::json!({ "issuer": "", "principal": "", "expires": number, "lease": null, "sealed": "" }),
            )
            .unwrap(),
        );
    }));
    assert!(matches!(
        one.put(&ann(), &note("first")).await,
        Err(StoreError::Common(_))
    ));
}
