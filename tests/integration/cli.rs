//! The commands other than `run` and `stdio`: their output and exit status.

use std::path::Path;
use std::process::{Output, Stdio};

use fanlight_tests::slicer::compact;

use crate::harness::{TempFile, fanlight, set_limits, within};
use crate::scripted::{Backend, Era, Reply, Transport, config};

/// A tool and its result, with text that decoding would change.
const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object"},"unheard-of":1.0}"#;
const RESULT_MEMBERS: &str =
    r#""content":[{"type":"text","text":"hello"}],"structuredContent":{"n":1E400}"#;

async fn backend(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.on("tools/list", backend.list("tools", TOOL));
    backend.on("tools/call", Reply::result(era.complete(RESULT_MEMBERS)));
    backend
}

async fn command(arguments: &[&str], config_text: &str) -> Output {
    let config = TempFile::new("yaml", config_text);
    let mut command = fanlight();
    command
        .args(arguments)
        .arg("--config")
        .arg(config.path())
        .stdin(Stdio::null());
    set_limits(&mut command);
    within(&format!("{arguments:?}"), command.output())
        .await
        .unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test]
async fn check_prints_era_and_counts_of_every_backend() {
    let legacy = backend(Era::Legacy, Transport::Stdio).await;
    let modern = backend(Era::Modern, Transport::Http).await;
    let output = command(
        &["check"],
        &config(&[legacy.entry("old-one"), modern.entry("new-one")]),
    )
    .await;
    let output_text = text(&output);
    assert!(output.status.success(), "{output_text}");
    for (name, revision) in [("old-one", "2025-11-25"), ("new-one", "2026-07-28")] {
        let row = output_text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|row| row.contains(&name));
        let row = row.unwrap_or_else(|| panic!("{name} missing in {output_text}"));
        assert!(row.contains(&revision), "{row:?}");
        // Counts follow the revision; tools are the first count.
        let counts = row
            .iter()
            .skip_while(|word| **word != revision)
            .skip(1)
            .take(4);
        assert_eq!(
            counts.collect::<Vec<_>>(),
            [&"1", &"0", &"0", &"0"],
            "{output_text}"
        );
        let about = output_text
            .lines()
            .find(|line| line.starts_with(&format!("{name} is ")))
            .unwrap_or_default();
        assert!(
            about.contains(", with ") && about.contains("tools"),
            "description of {name}: {output_text}"
        );
    }
}

/// `check` describes each era that the server serves.
#[tokio::test]
async fn check_shows_both_eras_of_a_server_that_has_both() {
    const INITIALIZED: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
    for transport in [Transport::Http, Transport::Stdio] {
        let (both, modern) = (
            backend(Era::Modern, transport).await,
            backend(Era::Modern, transport).await,
        );
        both.on("initialize", Reply::result(INITIALIZED));
        let output = command(
            &["check"],
            &config(&[both.entry("both"), modern.entry("single")]),
        )
        .await;
        let output_text = text(&output);
        assert!(output.status.success(), "{output_text}");
        let row = |name: &str| {
            let mut rows = output_text
                .lines()
                .filter(|line| line.split_whitespace().next() == Some(name));
            rows.find(|line| line.contains("2026-07-28"))
                .unwrap_or_else(|| panic!("{name} missing in {output_text}"))
        };
        assert!(
            row("both").contains("modern 2026-07-28, legacy 2025-06-18"),
            "{output_text}"
        );
        assert!(
            row("single").contains("modern 2026-07-28") && !row("single").contains("legacy"),
            "{output_text}"
        );
    }
}

#[tokio::test]
async fn check_fails_for_an_unreachable_backend() {
    let good = backend(Era::Modern, Transport::Http).await;
    let bad = r#""bad-one":{"command":"/nonexistent/fanlight-test-server"}"#.to_owned();
    let output = command(&["check"], &config(&[good.entry("good-one"), bad])).await;
    let output_text = text(&output);
    assert!(!output.status.success(), "{output_text}");
    assert!(
        output_text.contains("bad-one") && output_text.contains("good-one"),
        "{output_text}"
    );
}

#[tokio::test]
async fn validate_finds_what_run_refuses_in_other_files() {
    let folder = TempFile::folder();
    let policy = folder.path().join("rules.cedar");
    std::fs::write(&policy, "permit(principal, action, nothing);").unwrap();
    let server = r#""mcpServers":{"a":{"command":"true"}}"#;
    for (more, said) in [
        (
            format!(r#""policy":{{"files":[{policy:?}]}}"#),
            "rules.cedar",
        ),
        (r#""pins":{"mode":"hold"}"#.to_owned(), "fanlight.lock.json"),
    ] {
        let output = command(&["validate"], &format!("{{{more},{server}}}")).await;
        let output_text = text(&output);
        assert_eq!(output.status.code(), Some(2), "{output_text}");
        assert!(output_text.contains(said), "{output_text}");
    }
}

/// The tools of a server that is down are unknown.
#[tokio::test]
async fn call_of_a_server_that_is_down_says_so() {
    let good = backend(Era::Modern, Transport::Http).await;
    let bad = r#""bad-one":{"command":"/nonexistent/fanlight-test-server"}"#.to_owned();
    let output = command(
        &["call", "bad-one__x"],
        &config(&[good.entry("good-one"), bad]),
    )
    .await;
    let output_text = text(&output);
    assert!(
        !output.status.success() && !output_text.contains("no tool is called"),
        "{output_text}"
    );
    assert!(output_text.contains("no such command"), "{output_text}");
}

#[tokio::test]
async fn configuration_problems_are_reported_together_with_their_positions() {
    let broken = "mcpServers:\n  a:\n    comand: x\n  b:\n    command: y\n    env:\n      KEY: ${FANLIGHT_TEST_NO_SUCH_VARIABLE}\n";
    let output = command(&["check"], broken).await;
    let output_text = text(&output);
    assert!(!output.status.success(), "{output_text}");
    for part in [
        "comand",
        "command",
        "FANLIGHT_TEST_NO_SUCH_VARIABLE",
        ":3:",
        ":7:",
    ] {
        assert!(
            output_text.contains(part),
            "`{part}` missing in {output_text}"
        );
    }
}

#[tokio::test]
async fn secrets_of_the_configuration_are_never_printed() {
    let config = r#"{"mcpServers":{
        "web":{"type":"http","url":"http://user:s3cret@127.0.0.1:9/mcp?key=s3cret","headers":{"Authorization":"Bearer s3cret"}},
        "child":{"command":"/nonexistent/server","args":["--token=s3cret"],"env":{"TOKEN":"s3cret"}}
    }}"#;
    for arguments in [
        &["check"][..],
        &["list"],
        &["list", "--log", "debug"],
        &["call", "web__t", "{}"],
    ] {
        let output_text = text(&command(arguments, config).await);
        assert!(
            !output_text.contains("s3cret"),
            "{arguments:?}: {output_text}"
        );
    }
}

#[tokio::test]
async fn list_shows_the_merged_catalogue() {
    let (one, two) = (
        backend(Era::Legacy, Transport::Stdio).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let config = config(&[one.entry("one"), two.entry("two")]);
    let table = command(&["list", "tools"], &config).await;
    assert!(table.status.success(), "{}", text(&table));
    let shown = String::from_utf8(table.stdout).unwrap();
    assert!(
        shown.find("one__t").unwrap() < shown.find("two__t").unwrap(),
        "{shown}"
    );
    let json = command(&["list", "tools", "--json"], &config).await;
    let shown = compact(&String::from_utf8(json.stdout).unwrap());
    assert!(
        shown.contains(&TOOL.replace("\"t\"", "\"one__t\"")),
        "entries as clients get them: {shown}"
    );
}

#[tokio::test]
async fn call_prints_the_result_and_its_exit_status_tells_errors() {
    for era in [Era::Legacy, Era::Modern] {
        let only = backend(era, Transport::Stdio).await;
        let config = config(&[only.entry("only")]);
        let called = command(&["call", "t", r#"{"x":1.0}"#], &config).await;
        assert!(called.status.success(), "{}", text(&called));
        let printed = compact(&String::from_utf8(called.stdout).unwrap());
        assert!(printed.contains(RESULT_MEMBERS), "{printed}");
        assert_eq!(
            only.received("tools/call")[0].member("params.arguments"),
            Some(r#"{"x":1.0}"#)
        );
        only.on(
            "tools/call",
            Reply::error(r#"{"code":-32602,"message":"no such thing"}"#),
        );
        let failed = command(&["call", "t"], &config).await;
        assert!(!failed.status.success());
        assert!(text(&failed).contains("no such thing"), "{}", text(&failed));
        let nonsense = command(&["call", "t", "{not JSON"], &config).await;
        assert!(!nonsense.status.success());
    }
}

#[tokio::test]
async fn diff_reports_only_real_differences() {
    for era in [Era::Legacy, Era::Modern] {
        for transport in [Transport::Http, Transport::Stdio] {
            let only = backend(era, transport).await;
            let config = config(&[only.entry("only")]);
            let same = command(&["diff", "t", "{}"], &config).await;
            assert!(same.status.success(), "{}", text(&same));
            let calls = std::sync::atomic::AtomicUsize::new(0);
            only.on(
                "tools/call",
                Reply::compute(move |_| {
                    let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    era.complete(&format!(
                        r#""content":[],"structuredContent":{{"n":{call}.0}}"#
                    ))
                }),
            );
            let different = command(&["diff", "t", "{}"], &config).await;
            assert!(!different.status.success(), "{}", text(&different));
            assert!(
                text(&different).contains("structuredContent"),
                "{}",
                text(&different)
            );
        }
    }
}

#[tokio::test]
async fn schema_command_prints_the_committed_schema() {
    let output = within("schema", fanlight().arg("schema").output())
        .await
        .unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/schema.json");
    let committed = std::fs::read_to_string(&committed)
        .unwrap_or_else(|error| panic!("{committed:?}: {error}"));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        committed,
        "run `fanlight schema > config/schema.json`"
    );
}

#[tokio::test]
async fn closed_standard_output_is_no_failure() {
    let mut command = fanlight();
    command
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = within("the end", child.wait_with_output()).await.unwrap();
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap().as_str()
        ),
        (Some(0), "")
    );
}

/// Fanlight reads lists on a connection of its own, on which no server request for the client
/// arrives.
#[tokio::test]
async fn list_of_a_legacy_server_does_not_wait_for_a_stream() {
    let backend = backend(Era::Legacy, Transport::Http).await;
    let entries = format!("{{{}}}", backend.entry("only"));
    let config = format!(r#"{{"mcpServers":{entries},"x-limits":"list=8s,streamOpening=60s"}}"#);
    let output = command(&["list", "tools"], &config).await;
    assert!(output.status.success(), "{}", text(&output));
    let initialized = backend.received("initialize");
    assert!(
        initialized
            .iter()
            .any(|request| request.member("params.capabilities.sampling").is_some()),
        "declared"
    );
}
