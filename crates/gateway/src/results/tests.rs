//! Tests of the store of kept results.

use std::time::Duration;

use fanlight_canonical::{Endpoint, Holder, Principal, SessionKey};
use fanlight_protocol::Json;

use super::*;

const KEEP: Duration = Duration::from_secs(60);

fn rules(memory: usize, disk: usize) -> ResultRules {
    ResultRules {
        section: "s".into(),
        inline: 1,
        keep_for: KEEP,
        memory,
        disk,
    }
}

fn peer(last: u8) -> Peer {
    Peer::Address([10, 0, 0, last].into())
}

fn ann() -> Caller {
    Caller::request_of(Holder::from(Principal::new("issuer", "ann")))
}

fn result(size: usize) -> Shortened {
    Shortened {
        result: Json::null(),
        parts: vec![Part {
            path: "/content/0".into(),
            form: Form::Text,
            mime: "text/plain".into(),
            place: 0..size,
        }],
        kept: vec![Bytes::from("x".repeat(size))],
    }
}

/// Keeps a result of `size` bytes; returns its handle.
async fn keep(
    results: &KeptResults,
    rules: &ResultRules,
    of: (&Caller, &Peer),
    size: usize,
) -> Option<String> {
    let handle = results.handle(of.0).unwrap();
    let until = Instant::now() + KEEP;
    let is_kept = results
        .keep(&handle, of, rules, until, None, result(size))
        .await;
    is_kept.then_some(handle)
}

fn store(files: Option<Arc<dyn ResultFiles>>) -> Arc<KeptResults> {
    KeptResults::new(&Keys::default(), files).unwrap()
}

/// The number of entries.
fn entries(results: &KeptResults) -> usize {
    results.state.lock().table.len()
}

#[derive(Debug, Default)]
struct Files(AtomicBool);

#[derive(Debug)]
struct File(Bytes);

impl ResultFiles for Files {
    fn write(&self, pieces: Vec<Bytes>) -> BoxFuture<'_, io::Result<Box<dyn KeptFile>>> {
        Box::pin(async move {
            if self.0.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(Box::new(File(pieces.concat().into())) as Box<dyn KeptFile>)
        })
    }
}

impl KeptFile for File {
    fn read(&self, range: Range<usize>) -> BoxFuture<'_, io::Result<Bytes>> {
        Box::pin(async move { Ok(self.0.slice(range)) })
    }
}

#[tokio::test(start_paused = true)]
async fn result_belongs_to_its_principal_or_session_until_its_time() {
    let (results, rules) = (store(None), rules(1000, 0));
    let handle = keep(&results, &rules, (&ann(), &peer(1)), 10)
        .await
        .unwrap();
    assert!(results.find(&handle, &ann()).is_some());
    let elsewhere = Holder::new(ann().principal().clone(), Endpoint::from_path("/other"));
    let bob = Principal::new("issuer", "bob").into();
    for other in [elsewhere, bob, Principal::anonymous().into()] {
        assert!(results.find(&handle, &Caller::request_of(other)).is_none());
    }
    let session = |key| Caller::session_of(Principal::anonymous(), SessionKey(key));
    let of_session = keep(&results, &rules, (&session(1), &peer(1)), 10)
        .await
        .unwrap();
    assert!(results.find(&of_session, &session(1)).is_some());
    assert!(results.find(&of_session, &session(2)).is_none());
    assert!(
        results
            .find(&of_session, &Caller::request_of(Principal::anonymous()))
            .is_none()
    );
    tokio::time::sleep(KEEP).await;
    assert!(results.find(&handle, &ann()).is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(entries(&results), 0, "nobody asked for it");
}

#[tokio::test]
async fn oldest_results_of_who_keeps_most_leave_first() {
    let (results, rules) = (store(None), rules(1000, 0));
    let caller = ann();
    let new = async |last: u8, size| keep(&results, &rules, (&caller, &peer(last)), size).await;
    let has = |handle: &Option<String>| results.find(handle.as_ref().unwrap(), &caller).is_some();
    let [one, two, other] = [new(1, 400).await, new(1, 300).await, new(2, 300).await];
    let three = new(1, 300).await;
    assert_eq!(
        [&one, &two, &other, &three].map(has),
        [false, true, true, true]
    );
    let more = new(2, 100).await;
    assert_eq!([&two, &other, &three, &more].map(has), [true; 4]);
    let more = new(2, 100).await;
    assert_eq!(
        [&two, &other, &three, &more].map(has),
        [false, true, true, true]
    );
    assert!(new(3, 1001).await.is_none());
    assert!(has(&three), "what cannot fit displaces nothing");
}

#[tokio::test]
async fn disk_follows_memory_and_a_full_disk_keeps_nothing() {
    let files = Arc::new(Files::default());
    let (results, rules) = (store(Some(Arc::clone(&files) as _)), rules(100, 250));
    let of = (&ann(), &peer(1));
    let all = [
        keep(&results, &rules, of, 90).await.unwrap(),
        keep(&results, &rules, of, 90).await.unwrap(),
        keep(&results, &rules, of, 200).await.unwrap(),
    ];
    let found = all.each_ref().map(|handle| results.find(handle, of.0));
    assert!(
        matches!(found, [Some(_), None, Some(_)]),
        "the oldest that make room leave"
    );
    let [.., Some(last)] = &found else { panic!() };
    assert!(matches!(last.place, Place::Disk(_)));
    let mut query = Query::default();
    query.set("bytes", "199-300").unwrap();
    let read = |path| {
        let reader = results.reader(of.1);
        let piece = |piece: &Piece, _: &Part| (piece.form, piece.bytes.clone());
        last.read(path, &query, reader, piece)
    };
    let expected = (Form::Text, Bytes::from_static(b"x"));
    assert_eq!(read("/content/0").await.unwrap(), expected);
    assert!(matches!(read("/content/1").await, Err(NoPiece::Unknown)));
    files.0.store(true, Ordering::Relaxed);
    assert!(keep(&results, &rules, of, 240).await.is_none());
    assert_eq!(entries(&results), 2, "nothing leaves for what is not kept");
    assert!(results.find(&all[2], of.0).is_some());
    assert!(
        keep(&results, &rules, of, 5).await.is_some(),
        "memory has room"
    );
}

#[tokio::test(start_paused = true)]
async fn result_with_a_shorter_time_is_dropped_before_older_ones() {
    let results = store(None);
    let (long, caller) = (rules(1000, 0), ann());
    keep(&results, &long, (&caller, &peer(1)), 10)
        .await
        .unwrap();
    let handle = results.handle(&caller).unwrap();
    let until = Instant::now() + KEEP / 2;
    let of = (&caller, &peer(1));
    let kept = results.keep(&handle, of, &long, until, None, result(10));
    assert!(kept.await);
    tokio::time::sleep(KEEP / 2 + Duration::from_secs(1)).await;
    assert_eq!(entries(&results), 1);
}

#[tokio::test]
async fn many_results_of_many_peers_keep_their_order() {
    const MOST: usize = 16_384;
    let (results, rules, caller) = (store(None), rules(1 << 20, 0), ann());
    let new = async |number: u32| {
        let peer = Peer::User(number % 5000);
        keep(&results, &rules, (&caller, &peer), 1).await.unwrap()
    };
    let mut all = Vec::new();
    for number in 0..20_000 {
        all.push(new(number).await);
    }
    assert_eq!(entries(&results), MOST);
    // The results after the limit displace the oldest of their own peers.
    let is_kept = |number: usize| results.find(&all[number], &caller).is_some();
    assert!(is_kept(19_999) && is_kept(9_999) && is_kept(0));
    assert!(!is_kept(4_999) && !is_kept(2_000));
}
