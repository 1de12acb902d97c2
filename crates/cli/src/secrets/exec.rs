//! Secrets from the standard output of programs.

use std::process::Stdio;

use fanlight_config::settings::is_own_variable;
use fanlight_protocol::visible::escaped_lines;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::MAX_SIZE;
use crate::process_group::ProcessGroup;

/// The limit of characters shown of a program's error.
const SHOWN: usize = 200;

/// The output of a program, without the final line break. Dropping the future kills the program
/// with its process group.
pub(super) async fn output(command: &[String]) -> Result<String, String> {
    let (program, arguments) = command.split_first().ok_or("no program is named")?;
    let own = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.to_str().is_some_and(is_own_variable));
    let mut starting = Command::new(program);
    starting
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    own.for_each(|name| _ = starting.env_remove(name));
    starting.process_group(0).kill_on_drop(true);
    let mut child = starting
        .spawn()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    let _group = ProcessGroup::new(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (written, said) = tokio::join!(bounded(stdout), bounded(stderr));
    if written.len() > MAX_SIZE {
        return Err(format!("{program} wrote more than {MAX_SIZE} bytes"));
    }
    let status = child
        .wait()
        .await
        .map_err(|error| format!("{program} cannot be waited for: {error}"))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&said)
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(SHOWN)
            .collect::<String>();
        return Err(format!(
            "{program} ended with {status}: {}",
            escaped_lines(&said)
        ));
    }
    let text =
        String::from_utf8(written).map_err(|_| format!("the output of {program} is not UTF-8"))?;
    match text.trim_end_matches(['\n', '\r']) {
        "" => Err(format!("{program} wrote nothing")),
        text => Ok(text.to_owned()),
    }
}

/// Reads a pipe up to one byte beyond the maximum length of a secret.
async fn bounded(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(pipe) = pipe {
        // If reading fails, the program's exit status decides.
        let _ = pipe.take(MAX_SIZE as u64 + 1).read_to_end(&mut read).await;
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn output_of(command: &[&str]) -> Result<String, String> {
        output(
            &command
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
        .await
    }

    #[tokio::test]
    async fn output_is_taken_without_its_line_break() {
        assert_eq!(output_of(&["printf", "a b\\n"]).await.as_deref(), Ok("a b"));
        // No shell interprets the words.
        assert_eq!(
            output_of(&["echo", "$HOME;id"]).await.as_deref(),
            Ok("$HOME;id")
        );
    }

    #[tokio::test]
    async fn failures_say_why_and_nothing_of_the_output() {
        for (command, why) in [
            (
                &["sh", "-c", "echo s3cret; echo locked >&2; exit 3"][..],
                "exit status: 3: locked",
            ),
            (&["true"], "wrote nothing"),
            (&["no-such-program"], "cannot be started"),
            (&["head", "-c", "70000", "/dev/zero"], "wrote more than"),
            (&["printf", "\\377"], "not UTF-8"),
        ] {
            let error = output_of(command).await.unwrap_err();
            assert!(error.contains(why) && !error.contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn program_that_is_not_waited_for_any_more_ends_with_what_it_started() {
        let file = std::env::temp_dir().join(format!("fanlight-exec-{}", std::process::id()));
        let script = format!(
            "sleep 600 & echo $! > {0}.part; mv {0}.part {0}; wait",
            file.display()
        );
        let command = ["sh", "-c", &script];
        let mut running = Box::pin(output_of(&command));
        let pid: i32 = loop {
            let _ = tokio::time::timeout(std::time::Duration::from_millis(10), &mut running).await;
            if let Ok(text) = std::fs::read_to_string(&file) {
                break text.trim().parse().unwrap();
            }
        };
        drop(running);
        let _ = std::fs::remove_file(&file);
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // Only the system reaps this process, which takes a moment.
        let ended = async {
            while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), ended)
            .await
            .expect("it runs on");
    }

    fn is_zombie(pid: rustix::process::Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| {
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| rest.trim_start().starts_with('Z'))
        })
    }
}
