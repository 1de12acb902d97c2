//! A reader's folder and shell beside a running demo; `fanlight` is the program under test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use fanlight_testkit::harness::{Gateway, Log, TempFile, within};
use fanlight_testkit::{programs, tls};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

/// The documentation's addresses for clients and operators; tests use others.
const CLIENTS: &str = "127.0.0.1:8080";
const OPERATORS: &str = "127.0.0.1:8081";

/// The commands that ask a running gateway: the reader's asks the usual address, the test's asks
/// the demo.
const ASKING: &str = "status|traces|reload|enable|disable|restart|end-session|trace-test|logs";

/// A reader who follows one page from its top.
pub(crate) struct Reader {
    folder: TempFile,
    programs: TempFile,
    demo: Option<Gateway>,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let reader = Self {
            folder: TempFile::folder(),
            programs: TempFile::folder(),
            demo: None,
        };
        // Files that configurations refer to.
        reader.write("keys.yaml", "keys: []");
        let authority = tls::Authority::new();
        let pair = authority.server();
        for (name, text) in [
            ("cert.pem", pair.pem()),
            ("key.pem", pair.key()),
            ("ca.pem", authority.pem()),
        ] {
            reader.write(name, &text);
        }
        reader
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Checks that `fanlight validate` accepts the file; returns its output if not. Variables need
    /// not be set.
    pub(crate) async fn validate(&self, name: &str) -> Result<(), String> {
        // A configuration with `pins` needs the file that `fanlight pin` writes.
        let lock = self.folder.path().join("fanlight.lock.json");
        fs::write(lock, r#"{"version":1,"servers":{}}"#).unwrap();
        let command = format!("fanlight validate --allow-missing-env --config {name}");
        self.shell(&self.fanlight("exec \"$PROGRAM\" \"$@\""), &command, 0)
            .await
    }

    /// Runs the text; returns its output if it ends with another status.
    pub(crate) async fn run(&mut self, text: &str, status: i32) -> Result<(), String> {
        let demo = match &mut self.demo {
            Some(demo) => demo,
            none => none.insert(Gateway::demo().await),
        };
        let (mcp, admin) = (demo.mcp.to_string(), demo.admin.to_string());
        let program = format!(
            "case \" $* \" in *' --admin '*|*' --config '*) ;;\n*) case \"$1\" in {ASKING}) set -- \"$@\" --admin http://{admin} ;; esac ;;\nesac\n\
             exec \"$PROGRAM\" \"$@\""
        );
        self.shell(
            &self.fanlight(&program),
            &text.replace(CLIENTS, &mcp).replace(OPERATORS, &admin),
            status,
        )
        .await
    }

    /// Runs the text until it listens, and ends it; returns its output if it ends before.
    pub(crate) async fn serve(&self, text: &str) -> Result<(), String> {
        let add = |option| {
            format!(
                "case \" $* \" in *' {option} '*) ;; *) set -- \"$@\" {option} 127.0.0.1:0 ;; esac\n"
            )
        };
        let program = format!(
            "{}{}exec \"$PROGRAM\" \"$@\"",
            add("--listen"),
            add("--admin")
        );
        let text = text
            .replace(CLIENTS, "127.0.0.1:0")
            .replace(OPERATORS, "127.0.0.1:0");
        let mut command = self.command(&self.fanlight(&program), &text);
        let mut child = command.spawn().unwrap();
        let output = Log::print("out", child.stdout.take().unwrap());
        let errors = Log::print("err", child.stderr.take().unwrap());
        let listens = tokio::select! {
            _ = output.line_with("listening on ") => true,
            _ = child.wait() => false,
        };
        if !listens {
            return Err(format!(
                "it ended before it listened:\n{}{}",
                output.text(),
                errors.text()
            ));
        }
        let group = child
            .id()
            .and_then(|id| Pid::from_raw(id.try_into().unwrap()))
            .unwrap();
        kill_process_group(group, Signal::TERM).unwrap();
        within("it to end", child.wait()).await.unwrap();
        Ok(())
    }

    /// Checks that the options and arguments of each `fanlight` in the text are known.
    pub(crate) async fn parse(&self, text: &str) -> Result<(), String> {
        let program = self.fanlight("exec \"$PROGRAM\" \"$@\" --help");
        for command in commands(text) {
            self.shell(&program, &command, 0).await?;
        }
        Ok(())
    }

    /// A folder with this script as the program `fanlight`.
    fn fanlight(&self, script: &str) -> std::path::PathBuf {
        let program = self.programs.path().join("fanlight");
        // The file is replaced as a whole, since a running shell may still read the earlier one.
        let new = program.with_extension("new");
        fs::write(
            &new,
            format!(
                "#!/bin/sh\nPROGRAM='{}'\n{script}\n",
                programs::fanlight().display()
            ),
        )
        .unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, &program).unwrap();
        self.programs.path().to_owned()
    }

    fn command(&self, programs: &Path, text: &str) -> Command {
        let mut command = Command::new("sh");
        let path = format!(
            "{}:{}",
            programs.display(),
            std::env::var("PATH").unwrap_or_default()
        );
        command
            .args(["-euc", text])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("HOME", self.folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0);
        command
    }

    async fn shell(&self, programs: &Path, text: &str, status: i32) -> Result<(), String> {
        let output = within(text, self.command(programs, text).output())
            .await
            .unwrap();
        match output.status.code() {
            Some(code) if code == status => Ok(()),
            code => Err(format!(
                "`{}` ended with {code:?} in place of {status}:\n{}{}",
                text.trim_end(),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

/// The commands in a text that call `fanlight`, each without the rest of a pipeline or list.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let calls = |line: &str| {
        let words = line.split_whitespace();
        let mut words = words.skip_while(|word| {
            word.split_once('=').is_some_and(|(name, _)| {
                name.chars()
                    .all(|letter| letter.is_ascii_uppercase() || letter == '_')
            })
        });
        words.next() == Some("fanlight")
    };
    let ends = [" | ", " && ", " > ", " >> ", " 2>", "; ", " &"];
    let first = |line: &str| {
        let end = ends
            .iter()
            .filter_map(|end| line.find(end))
            .min()
            .unwrap_or(line.len());
        // A comment that the shell would not see after the cut.
        line[..end]
            .split("  #")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    joined
        .lines()
        .map(str::trim)
        .filter(|line| calls(line))
        .map(first)
        .collect()
}

#[test]
fn commands_of_fanlight_are_found() {
    let text = "docker pull x\nTOKEN=a fanlight list --json | jq .   # all\nfanlight run \\\n  --config a.yaml &\nfanlight # demo\n";
    assert_eq!(
        commands(text),
        [
            "TOKEN=a fanlight list --json",
            "fanlight run    --config a.yaml",
            "fanlight # demo"
        ]
    );
}
