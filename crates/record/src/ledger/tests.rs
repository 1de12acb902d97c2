//! Audit logs in files: written, continued, read, and verified.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::ledger::query::head_of;

fn retention(file_bytes: u64, kept_bytes: u64) -> Retention {
    Retention {
        file_bytes,
        kept_bytes,
        kept_for: Duration::from_secs(86_400),
    }
}

fn settings(folder: &Path) -> LedgerSettings {
    let files = LedgerFiles::from_path(&folder.join("audit.jsonl")).unwrap();
    LedgerSettings {
        files,
        retention: retention(1 << 20, 4 << 20),
        mirror: None,
        replica: Some("r1".to_owned()),
    }
}

fn entry<'a>(who: &str, item: &'a str, outcome: &'static str) -> Entry<'a> {
    Entry {
        event: "request",
        principal: Some(format!("key#{who}").into()),
        server: Some("files".into()),
        action: Some("tools/call".into()),
        item: Some(item.into()),
        outcome,
        response_bytes: Some(400),
        ..Entry::default()
    }
}

/// Writes `entries` entries and ends.
fn write(settings: &LedgerSettings, entries: usize) {
    let ledger = Ledger::open(settings.clone()).unwrap();
    (0..entries).for_each(|number| ledger.add(entry("ann", &format!("t{number}"), "ok")));
    ledger.end();
    let written = Written {
        written: u64::try_from(entries).unwrap(),
        lost: 0,
    };
    assert_eq!(ledger.counts(), written);
}

fn public(settings: &LedgerSettings) -> PublicKey {
    CheckpointKey::from_bytes(&fs::read(settings.files.key()).unwrap())
        .unwrap()
        .public()
        .clone()
}

fn verified(settings: &LedgerSettings) -> Result<Verified, Wrong> {
    verify(&settings.files, &public(settings), &[])
}

fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn record_is_continued_by_the_next_process_and_verified_as_a_whole() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 3);
    write(&settings, 2);
    let found = verified(&settings).unwrap();
    assert_eq!(
        found,
        Verified {
            lines: (1, 6),
            checkpoints: 2,
            after: 0
        }
    );
    // As if the process was killed in the middle of a line.
    let whole = fs::read_to_string(settings.files.current()).unwrap();
    fs::write(settings.files.current(), format!("{whole}{{\"seq\":7,\"ti")).unwrap();
    assert_eq!(verified(&settings).unwrap().lines, (1, 6));
    write(&settings, 1);
    assert_eq!(verified(&settings).unwrap().lines, (1, 7));
}

#[test]
fn checkpoint_that_was_not_written_to_its_end_is_none() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 1);
    let whole = fs::read(settings.files.checkpoints()).unwrap();
    for length in 1..whole.len() {
        fs::write(
            settings.files.checkpoints(),
            [&whole, &whole[..length]].concat(),
        )
        .unwrap();
        assert_eq!(verified(&settings).unwrap().checkpoints, 1, "{length}");
    }
    write(&settings, 1);
    assert_eq!(verified(&settings).unwrap().checkpoints, 2);
}

#[test]
fn file_that_was_not_begun_goes_on_where_the_last_one_has_ended() {
    let folder = TempDir::new().unwrap();
    let settings = LedgerSettings {
        retention: retention(1, 9_000),
        ..settings(folder.path())
    };
    write(&settings, 2);
    write(&settings, 2);
    let before = settings.files.list();
    // As if the process ended between renaming a file and beginning the next.
    let head = head_of(lines(&settings.files.current())[0].as_bytes()).unwrap();
    fs::rename(
        settings.files.current(),
        settings.files.rotated_path(head.number),
    )
    .unwrap();
    write(&settings, 2);
    assert!(settings.files.list().len() > before.len());
    assert_eq!(verified(&settings).unwrap().lines.0, 1);
}

#[derive(Debug, Default)]
struct Copies(Mutex<Vec<String>>);

impl Mirror for Copies {
    fn line(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }

    fn checkpoint(&self, note: &str) {
        self.0.lock().unwrap().push(note.to_owned());
    }

    fn counts(&self) -> Written {
        Written {
            written: 7,
            lost: 0,
        }
    }
}

#[test]
fn mirror_gets_each_line_and_checkpoint_as_it_is_in_the_files() {
    let folder = TempDir::new().unwrap();
    let copies = Arc::new(Copies::default());
    let mirror: Arc<dyn Mirror> = Arc::<Copies>::clone(&copies);
    let settings = LedgerSettings {
        retention: retention(600, 4 << 20),
        mirror: Some(mirror),
        ..settings(folder.path())
    };
    write(&settings, 3);
    write(&settings, 2);
    let written: Vec<_> = settings
        .files
        .list()
        .iter()
        .flat_map(|path| lines(path))
        .collect();
    let notes = fs::read_to_string(settings.files.checkpoints()).unwrap();
    let copies = copies.0.lock().unwrap();
    let (of_lines, of_notes): (Vec<_>, Vec<_>) = copies
        .iter()
        .cloned()
        .partition(|copy| copy.starts_with('{'));
    assert_eq!(of_lines, written);
    assert!(
        of_notes.len() > 1 && of_notes.iter().all(|note| notes.contains(note.as_str())),
        "{of_notes:?}"
    );
}

#[test]
fn two_processes_do_not_write_one_record() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let first = Ledger::open(settings.clone()).unwrap();
    let second = Ledger::open(settings).err().unwrap();
    assert_eq!(second.kind(), std::io::ErrorKind::WouldBlock);
    first.end();
}

#[test]
fn files_are_rotated_and_the_oldest_removed() {
    let folder = TempDir::new().unwrap();
    let settings = LedgerSettings {
        retention: retention(2_000, 9_000),
        ..settings(folder.path())
    };
    for _ in 0..30 {
        write(&settings, 3);
    }
    let all = settings.files.list();
    let bytes: u64 = all
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(all.len() > 2 && bytes < 12_000, "{all:?} {bytes}");
    let found = verified(&settings).unwrap();
    assert!(found.lines.0 > 1 && found.checkpoints > 1, "{found:?}");
}

#[test]
fn size_of_files_holds_for_entries_that_are_written_at_once() {
    let folder = TempDir::new().unwrap();
    let settings = LedgerSettings {
        retention: retention(4_000, 1 << 20),
        ..settings(folder.path())
    };
    write(&settings, 300);
    for path in settings.files.list() {
        let bytes = fs::metadata(&path).unwrap().len();
        assert!(bytes < 5_000, "{path:?} {bytes}");
    }
    assert_eq!(verified(&settings).unwrap().lines.0, 1);
}

#[test]
fn record_written_anew_disagrees_with_checkpoints_kept_elsewhere() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 4);
    let kept = fs::read_to_string(settings.files.checkpoints()).unwrap();
    let key = fs::read(settings.files.key()).unwrap();
    // A person who has the files and the key writes another history.
    for path in [settings.files.current(), settings.files.checkpoints()] {
        fs::remove_file(path).unwrap();
    }
    write(&settings, 4);
    assert_eq!(fs::read(settings.files.key()).unwrap(), key);
    assert!(verified(&settings).is_ok());
    let wrong = verify(&settings.files, &public(&settings), &[kept]).unwrap_err();
    assert!(matches!(wrong, Wrong::Checkpoint { .. }), "{wrong}");
}

#[test]
fn missing_last_lines_are_found_without_checkpoints_once_one_was_due() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 8);
    let later = |seconds| {
        let now = SystemTime::now() + Duration::from_secs(seconds);
        verify::verify_at(&settings.files, &public(&settings), &[], now)
    };
    assert!(later(3600).is_ok());
    let kept = lines(&settings.files.current());
    let remove = |last: usize| {
        let text: String = kept[..kept.len() - last].join("\n") + "\n";
        fs::write(settings.files.current(), text).unwrap();
    };
    remove(3);
    assert!(later(0).is_err(), "a checkpoint has more lines");
    fs::remove_file(settings.files.checkpoints()).unwrap();
    for last in 0..kept.len() - 1 {
        remove(last);
        assert!(later(0).is_ok(), "a checkpoint is not due yet");
        let wrong = later(120).unwrap_err();
        assert!(matches!(wrong, Wrong::Uncovered { from: 1 }), "{wrong}");
    }
}

#[test]
fn only_the_newest_checkpoints_are_kept() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let count =
        || verify::notes(&fs::read_to_string(settings.files.checkpoints()).unwrap()).count();
    let before: String = (0..1_998)
        .map(|number| format!("earlier\n{number}\nhash\n\n— signature\n\n"))
        .collect();
    fs::write(settings.files.checkpoints(), before).unwrap();
    write(&settings, 1);
    assert_eq!(count(), 1_999);
    write(&settings, 1);
    assert_eq!(count(), 1_000);
    let kept = fs::read_to_string(settings.files.checkpoints()).unwrap();
    assert!(
        kept.starts_with("earlier\n1000\n"),
        "the oldest are dropped"
    );
    write(&settings, 1);
    assert_eq!(count(), 1_001);
}

#[test]
fn lines_cut_off_at_the_end_are_missed_by_the_checkpoint() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 4);
    let mut all = lines(&settings.files.current());
    all.pop();
    fs::write(settings.files.current(), format!("{}\n", all.join("\n"))).unwrap();
    let wrong = verified(&settings).unwrap_err();
    assert!(
        wrong.to_string().contains("lines are missing at the end"),
        "{wrong}"
    );
}

#[test]
fn newest_lines_that_are_wanted_are_found() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let ledger = Ledger::open(settings).unwrap();
    ledger.add(entry("ann", "read_file", "ok"));
    ledger.add(entry("bob", "write_file", "error"));
    ledger.add(entry("ann", "write_file", "refused"));
    ledger.end();
    let items = |filter: Filter, most| -> Vec<String> {
        let found = read(&LedgerFiles::in_folder(folder.path()), &filter, most).unwrap();
        found
            .iter()
            .map(|line| line.get("item").unwrap().as_str().unwrap().into_owned())
            .collect()
    };
    let filter = Filter::default;
    assert_eq!(
        items(filter(), 9),
        ["write_file", "write_file", "read_file"]
    );
    assert_eq!(items(filter(), 1), ["write_file"]);
    assert_eq!(
        items(
            Filter {
                principal: Some("ann".into()),
                ..filter()
            },
            9
        ),
        ["write_file", "read_file"]
    );
    assert_eq!(
        items(
            Filter {
                item: Some("files/read_*".into()),
                ..filter()
            },
            9
        ),
        ["read_file"]
    );
    assert_eq!(
        items(
            Filter {
                item: Some("*_file".into()),
                outcome: Some("error".into()),
                ..filter()
            },
            9
        ),
        ["write_file"]
    );
    let hour = Duration::from_secs(3600);
    assert_eq!(
        items(
            Filter {
                since: Some(SystemTime::now() + hour),
                ..filter()
            },
            9
        ),
        [""; 0]
    );
    assert_eq!(
        items(
            Filter {
                until: Some(SystemTime::now() - hour),
                ..filter()
            },
            9
        ),
        [""; 0]
    );
    let used = usage(&LedgerFiles::in_folder(folder.path()), &filter()).unwrap();
    let of_ann: Vec<_> = used
        .iter()
        .filter(|(key, _)| key.principal == "key#ann")
        .collect();
    assert_eq!(of_ann.len(), 2);
    assert_eq!(
        (
            of_ann[1].1.calls,
            of_ann[1].1.refused,
            of_ann[0].1.estimated_tokens()
        ),
        (1, 1, 93)
    );
}

#[test]
fn called_tools_are_those_that_ran_since_the_oldest_line() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let ledger = Ledger::open(settings.clone()).unwrap();
    for (item, outcome, action) in [
        ("ran", "ok", "tools/call"),
        ("ran", "tool_error", "tools/call"),
        ("refused", "refused", "tools/call"),
        ("decided", "decided", "tools/call"),
        ("read", "ok", "resources/read"),
        ("invented-1", "refused", "tools/call"),
        ("invented-2", "refused", "tools/call"),
    ] {
        let (endpoint, client) = (Some("/mcp".into()), Some("c/1".into()));
        let (action, entry) = (Some(action.into()), entry("ann", item, outcome));
        let server = entry.server.filter(|_| !item.starts_with("invented"));
        ledger.add(Entry {
            endpoint,
            client,
            action,
            server,
            ..entry
        });
    }
    ledger.end();
    let found = calls(std::slice::from_ref(&settings.files)).unwrap();
    let ran = ("/mcp".to_owned(), "files/ran".to_owned());
    assert_eq!(found.tools.into_iter().collect::<Vec<_>>(), [ran]);
    assert_eq!(found.since.unwrap().len(), "2026-11-25T21:03:11.204Z".len());
    let used = usage(std::slice::from_ref(&settings.files), &Filter::default()).unwrap();
    let rows: Vec<_> = used
        .iter()
        .map(|(key, row)| (&*key.client, &*key.what, row.calls))
        .collect();
    assert!(rows.contains(&("c/1", "files/ran", 2)), "{rows:?}");
    // Names that no server has are counted together.
    assert!(rows.contains(&("c/1", "tools/call", 2)), "{rows:?}");
}

#[test]
fn damaged_record_is_set_aside() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    write(&settings, 1);
    fs::write(settings.files.current(), "garbage\n").unwrap();
    write(&settings, 1);
    assert_eq!(lines(&settings.files.current()).len(), 2);
    let aside = fs::read_dir(folder.path()).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("damaged")
    });
    assert_eq!(aside.count(), 1);
}

#[tokio::test]
async fn acknowledged_entry_is_in_the_file_and_one_that_cannot_be_written_is_not_acknowledged() {
    let folder = TempDir::new().unwrap();
    let settings = settings(folder.path());
    let ledger = Ledger::open(settings.clone()).unwrap();
    ledger
        .add_durably(entry("ann", "t", "decided"))
        .unwrap()
        .await
        .unwrap();
    assert!(
        lines(&settings.files.current())
            .iter()
            .any(|line| line.contains(r#""outcome":"decided""#))
    );
    ledger.end();
    assert_eq!(
        ledger.add_durably(entry("ann", "t", "decided")).err(),
        Some(NotRecorded)
    );
}

#[tokio::test]
async fn line_is_not_acknowledged_in_a_file_that_another_program_has_changed() {
    type Tamper = fn(&Path);
    let tampers: [Tamper; 4] = [
        |file| fs::remove_file(file).unwrap(),
        |file| fs::rename(file, file.with_extension("1")).unwrap(),
        |file| fs::write(file, "").unwrap(),
        |file| {
            fs::copy(file, file.with_extension("1")).unwrap();
            fs::rename(file.with_extension("1"), file).unwrap();
        },
    ];
    for (number, tamper) in tampers.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let settings = settings(folder.path());
        let ledger = Ledger::open(settings.clone()).unwrap();
        let decided = async |item| {
            let added = ledger.add_durably(entry("ann", item, "decided"));
            added.unwrap().await
        };
        assert_eq!(decided("first").await, Ok(()), "{number}");
        tamper(&settings.files.current());
        assert_eq!(decided("lost").await, Err(NotRecorded), "{number}");
        assert_eq!(decided("last").await, Ok(()), "{number}");
        let text = lines(&settings.files.current()).concat();
        assert!(
            text.contains("last") && text.contains(r#""lost":1"#),
            "{number}: {text}"
        );
        ledger.end();
        // A copy has all lines.
        assert_eq!(verified(&settings).is_ok(), number == 3, "{number}");
    }
}

#[derive(Clone, Debug)]
enum Tampering {
    Change { line: usize, at: usize, byte: u8 },
    Remove { line: usize },
    Swap { line: usize },
    Repeat { line: usize },
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        (0..9_usize, 0..400_usize, 0x20..0x7e_u8).prop_map(|(line, at, byte)| Tampering::Change {
            line,
            at,
            byte
        }),
        (0..9_usize).prop_map(|line| Tampering::Remove { line }),
        (0..8_usize).prop_map(|line| Tampering::Swap { line }),
        (0..9_usize).prop_map(|line| Tampering::Repeat { line }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_change_of_a_line_is_found(tampering in tampering()) {
        let folder = TempDir::new().unwrap();
        let settings = settings(folder.path());
        write(&settings, 8);
        prop_assert!(verified(&settings).is_ok());
        let before = lines(&settings.files.current());
        let mut after = before.clone();
        match tampering {
            Tampering::Change { line, at, byte } => {
                let mut bytes = after[line].clone().into_bytes();
                let at = at % bytes.len();
                bytes[at] = byte;
                after[line] = String::from_utf8(bytes).unwrap();
            }
            Tampering::Remove { line } => drop(after.remove(line)),
            Tampering::Swap { line } => after.swap(line, line + 1),
            Tampering::Repeat { line } => after.insert(line, before[line].clone()),
        }
        prop_assume!(before != after);
        fs::write(settings.files.current(), format!("{}\n", after.join("\n"))).unwrap();
        prop_assert!(verified(&settings).is_err());
    }
}
