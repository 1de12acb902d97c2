//! Completions, manual pages and help.

use std::fs;
use std::path::Path;

use super::{run_in, shell};
use crate::harness::TempFile;

#[tokio::test]
async fn completions_know_every_command() {
    let folder = TempFile::folder();
    for name in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let ran = run_in(folder.path(), &["completions", name]).await;
        for word in ["trace-test", "end-session", "allow-missing-env"] {
            assert!(
                ran.status == 0 && ran.out.contains(word),
                "{word} in {name}: {}",
                ran.text()
            );
        }
        assert!(
            !ran.out.contains("demo-server"),
            "a hidden command in {name}"
        );
        fs::write(folder.path().join(name), &ran.out).unwrap();
    }
    let ran = shell(folder.path(), "bash -n bash").await;
    assert_eq!(ran.status, 0, "{}", ran.text());
    let completed = r#"source ./bash; COMP_WORDS=(fanlight statu); COMP_CWORD=1; _fanlight fanlight statu fanlight; echo "${COMPREPLY[*]}""#;
    let ran = shell(folder.path(), format!("bash -c '{completed}'")).await;
    assert_eq!(ran.out.trim(), "status", "{}", ran.text());
    let wrong = run_in(folder.path(), &["completions", "csh"]).await;
    assert!(
        wrong.status == 2 && wrong.err.contains("bash"),
        "{}",
        wrong.text()
    );
}

#[tokio::test]
async fn manual_has_a_page_for_each_command() {
    let folder = TempFile::folder();
    let ran = run_in(folder.path(), &["man"]).await;
    assert!(
        ran.status == 0 && ran.out.contains(".TH fanlight 1"),
        "{}",
        ran.text()
    );
    assert_eq!(
        run_in(folder.path(), &["man", "--out", "pages/man1"])
            .await
            .status,
        0
    );
    for name in [
        "fanlight.1",
        "fanlight-check.1",
        "fanlight-keys-new.1",
        "fanlight-trace-test.1",
    ] {
        let page = fs::read_to_string(folder.path().join("pages/man1").join(name)).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
}

#[tokio::test]
async fn help_is_a_command_and_tells_the_exit_statuses() {
    let help = run_in(Path::new("/"), &["help"]).await;
    assert!(
        help.status == 0 && help.out.contains("Exit status:"),
        "{}",
        help.text()
    );
    let of_keys = run_in(Path::new("/"), &["help", "keys", "new"]).await;
    assert!(
        of_keys.status == 0 && of_keys.out.contains("--expires"),
        "{}",
        of_keys.text()
    );
    let wrong = run_in(Path::new("/"), &["stauts"]).await;
    assert!(
        wrong.status == 2 && wrong.err.contains("'status'"),
        "{}",
        wrong.text()
    );
}
