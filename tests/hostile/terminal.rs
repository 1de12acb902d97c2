//! Control characters in server names and messages, which a terminal would obey, and characters
//! that make a name look like another.

use std::process::Stdio;

use fanlight_testkit::slicer::member;

use crate::harness::{TempFile, fanlight, within};
use crate::raw_client::{modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};
use crate::target::{Bounds, Target};

/// JSON text that clears the screen, sets the title, makes the terminal answer, rings, returns to
/// the line's start, and deletes; the same in C1 characters. Then bidirectional overrides and
/// isolates, zero-width characters, a line separator, a tag.
const EVIL: &str = r"\u202e\u2066x\u2069\u200b\u200f\ufeff\u00ad\u2028\u061c\udb40\udc41\u001b[2J\u001b]0;owned\u0007\u001b[6n\u001bP+q\u001b\\\r\b\u007f\u009b2J\u009d0;x\u009c";

async fn evil_server(transport: Transport) -> Backend {
    let backend = Backend::start(Era::Modern, transport).await;
    let tool = format!(
        r#"{{"name":"evil{EVIL}","title":"{EVIL}","description":"{EVIL}","inputSchema":{{"type":"object"}}}},{{"name":"t","inputSchema":{{"type":"object"}}}}"#
    );
    backend.on("tools/list", backend.list("tools", &tool));
    let resource = format!(r#"{{"uri":"test://x/{EVIL}","name":"{EVIL}"}}"#);
    backend.on("resources/list", backend.list("resources", &resource));
    backend.on(
        "prompts/list",
        backend.list(
            "prompts",
            &format!(r#"{{"name":"{EVIL}","description":"{EVIL}"}}"#),
        ),
    );
    backend.on(
        "tools/call",
        Reply::error(format!(r#"{{"code":-32000,"message":"{EVIL}"}}"#))
            .complaining("\u{1b}[2J\u{202e}pwned\u{7}\n".as_bytes()),
    );
    backend.on_target(
        "tools/call",
        "t",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    backend
}

/// The first control or hidden character in a text, other than line ends and tabs, with its
/// surroundings.
fn control(text: &str) -> Option<String> {
    let hidden = "\u{202e}\u{2066}\u{2069}\u{200b}\u{200f}\u{feff}\u{ad}\u{2028}\u{61c}\u{e0041}";
    let is_evil = |character: char| match character {
        '\n' | '\t' => false,
        other => other.is_control() || hidden.contains(other),
    };
    let at = text.find(is_evil)?;
    Some(
        text[at..]
            .chars()
            .take(40)
            .flat_map(char::escape_debug)
            .collect(),
    )
}

fn assert_harmless(what: &str, text: &str) {
    assert_eq!(
        control(text),
        None,
        "{what} wrote a control character:\n{}",
        text.escape_debug()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_write_no_control_characters_of_servers() {
    let backend = evil_server(Transport::Stdio).await;
    backend.on(
        "tools/call",
        Reply::error(format!(r#"{{"code":-32000,"message":"{EVIL}"}}"#)),
    );
    let config = TempFile::new("yaml", &config(&[backend.entry("only")]));
    for arguments in [
        &["check"][..],
        &["list"],
        &["list", "tools"],
        &["list", "resources"],
        &["list", "prompts"],
        &["list", "tools", "--json"],
        &["call", "t"],
    ] {
        let mut command = fanlight();
        command
            .args(arguments)
            .arg("--config")
            .arg(config.path())
            .stdin(Stdio::null());
        let output = within(&format!("{arguments:?}"), command.output())
            .await
            .unwrap();
        assert_harmless(
            &format!("{arguments:?}"),
            &String::from_utf8_lossy(&output.stdout),
        );
        assert_harmless(
            &format!("{arguments:?}, to standard error,"),
            &String::from_utf8_lossy(&output.stderr),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_and_traces_have_no_control_characters_of_peers() {
    for transport in [Transport::Stdio, Transport::Http] {
        let options = r#""telemetry":{"trustInbound":true}"#;
        let logging = ["--log", "fanlight::child=debug,info"];
        let target = Target::with_arguments(evil_server(transport).await, options, &logging).await;
        // The client chooses the name, the server the error.
        let call = modern_request("1", "tools/call", &format!(r#""name":"x{EVIL}""#), "");
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "x"),
        ];
        crate::raw_client::post(target.gateway.mcp, &headers, &call)
            .await
            .text()
            .await;
        let named = modern_request("2", "tools/call", r#""name":"evil""#, "");
        let answer = post_modern(target.gateway.mcp, &named)
            .await
            .messages()
            .await
            .1;
        assert!(member(&answer, "error").is_some(), "{answer}");
        let admin = format!("http://{}", target.gateway.admin);
        for arguments in [&["traces"][..], &["status"]] {
            let output = fanlight()
                .args(arguments)
                .args(["--admin", &admin])
                .output();
            let output = within(&format!("{arguments:?}"), output).await.unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert_harmless(
                &format!("{arguments:?}"),
                &String::from_utf8_lossy(&output.stdout),
            );
        }
        if transport == Transport::Stdio {
            target.gateway.log.line_with("pwned").await;
        }
        assert_harmless("the log", &target.gateway.log.text());
        target.withstood(Bounds::SMALL).await;
    }
}
