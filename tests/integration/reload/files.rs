//! Triggers of a reload, and configurations that cannot be used.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use super::*;
use crate::harness::{TempFile, fanlight, within};
use crate::scripted::config;

/// Waits until a tool is listed.
async fn listed(gateway: &Gateway, tool: &str) {
    within("the tool to be listed", async {
        while !tools(gateway)
            .await
            .contains(&format!(r#""name":"{tool}""#))
        {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn unusable_configuration_changes_nothing_and_is_explained() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let gateway = Gateway::start_with(&config(&[only.entry("only")]), &["--no-watch"]).await;
    let good = metric(
        &gateway,
        "fanlight_config_last_reload_success_timestamp_seconds",
    )
    .await;
    assert!(good > 1e9);
    assert_eq!(
        metric(&gateway, "fanlight_config_last_reload_successful").await,
        1.0
    );
    gateway.configure(
        "{\"mcpServers\":{\n  \"only\":{\"comand\":\"x\",\"env\":{\"T\":\"s3cret\"}}\n}}",
    );
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 422);
    let shown = admin(&gateway, "/api/config").await;
    for text in [&report, &shown] {
        assert!(
            text.contains(r#""line": 2"#) && text.contains("did you mean `command`?"),
            "{text}"
        );
        assert!(
            text.contains(r#""result": "failed""#) && !text.contains("s3cret"),
            "{text}"
        );
    }
    assert!(shown.contains(r#""generation": 1"#), "{shown}");
    assert_eq!(
        metric(&gateway, "fanlight_config_last_reload_successful").await,
        0.0
    );
    assert!(call(&gateway, "t").await.contains("only"));
    gateway.log.line_with("configuration not reloaded").await;

    let run = async || {
        let url = format!("http://{}", gateway.admin);
        let output = fanlight()
            .args(["reload", "--admin", &url])
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, text) = run().await;
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(":2:") && text.contains("comand") && !text.contains("s3cret"),
        "{text}"
    );
    gateway.configure(&config(&[only.entry("renamed")]));
    assert_eq!(run().await.0, Some(0));
    assert_eq!(
        metric(&gateway, "fanlight_config_last_reload_successful").await,
        1.0
    );
    assert_eq!(metric(&gateway, "fanlight_config_generation").await, 2.0);
    assert_eq!(run().await.0, Some(0));
    assert_eq!(
        metric(&gateway, "fanlight_config_generation").await,
        2.0,
        "unchanged"
    );
}

#[tokio::test]
async fn changed_file_and_hangup_are_noticed() {
    let (a, b) = (
        server(Era::Modern, Transport::Http, "a").await,
        server(Era::Legacy, Transport::Http, "b").await,
    );
    let gateway = Gateway::start(&config(&[a.entry("a")])).await;
    gateway.configure(&config(&[a.entry("a"), b.entry("b")]));
    listed(&gateway, "b__t").await;
    // The file is overwritten in place.
    fs::write(gateway.config_path(), config(&[a.entry("a"), b.entry("c")])).unwrap();
    listed(&gateway, "c__t").await;
    let gateway = Gateway::start_with(&config(&[a.entry("a")]), &["--no-watch"]).await;
    gateway.configure(&config(&[a.entry("a"), b.entry("b")]));
    gateway.hang_up();
    listed(&gateway, "b__t").await;
}

#[tokio::test]
async fn swapped_symlink_of_a_mounted_volume_is_noticed() {
    let (a, b) = (
        server(Era::Modern, Transport::Http, "a").await,
        server(Era::Legacy, Transport::Http, "b").await,
    );
    let volume = TempFile::folder();
    let path = |name: &str| volume.path().join(name);
    // Kubernetes mounts a ConfigMap so: file → ..data/file, ..data → a folder whose name is a time.
    for (folder, entries) in [
        ("..1", vec![a.entry("a")]),
        ("..2", vec![a.entry("a"), b.entry("b")]),
    ] {
        fs::create_dir(path(folder)).unwrap();
        fs::write(path(folder).join("fanlight.yaml"), config(&entries)).unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    symlink("..data/fanlight.yaml", path("fanlight.yaml")).unwrap();
    let gateway = Gateway::start_at(path("fanlight.yaml")).await;
    listed(&gateway, "t").await;
    symlink("..2", path("..data_tmp")).unwrap();
    fs::rename(path("..data_tmp"), path("..data")).unwrap();
    fs::remove_dir_all(path("..1")).unwrap();
    listed(&gateway, "b__t").await;
}
