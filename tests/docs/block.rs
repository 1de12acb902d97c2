//! Blocks of code, and how each is checked.
//!
//! | the words after the language | how the block is checked |
//! |---|---|
//! | `config` | a whole configuration: `fanlight validate` accepts it; one that names no servers gets [`SERVERS`]; later blocks of the page find it as `fanlight.yaml`, `mcp.json` or `config.toml`, or under the name in `config=NAME` |
//! | `file=NAME` | another file, for later blocks of the page |
//! | `run` | the shell runs it beside a running demo, and it exits with 0, or with the status in `run=STATUS` |
//! | `serve` | as `run`, but its last command listens, and the test ends it |
//! | `needs=WHAT` | not run, since a test lacks something ([`NEEDS`]); options and arguments of `fanlight` in it are parsed |
//! | `tested=PATH` | run by this program of the repository, which names the page |
//! | `answer` | JSON that Fanlight reads or writes; `answer=SCHEMA` names its schema in docs/openapi.json |
//!
//! A block of the language `text` shows output, a synopsis (`fanlight run [OPTIONS]`) or a drawing,
//! and has none of these words.

/// Things that a block needs and a test lacks: names and descriptions.
const NEEDS: &[(&str, &str)] = &[
    ("client", "a desktop client or an editor"),
    ("cluster", "a Kubernetes cluster"),
    ("collector", "a collector or a store of traces"),
    ("docker", "Docker or Podman"),
    ("gateway", "the reader's gateway at an address of its own"),
    ("issuer", "an OpenID Connect issuer"),
    ("network", "the network"),
    ("root", "a machine of one's own"),
    ("servers", "the reader's own servers"),
    ("source", "a clone of the repository, and a compiler"),
];

/// The servers for configurations about other things.
pub(crate) const SERVERS: &str =
    "mcpServers: {files: {command: files}, git: {command: git}, search: {command: search}}\n";

/// A block of code.
pub(crate) struct Block {
    /// The page and the line.
    pub(crate) place: String,
    pub(crate) language: String,
    pub(crate) text: String,
    /// The check of the block, or an error in the words that choose it.
    pub(crate) check: Result<Check, String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Config { name: String },
    File { name: String },
    Run { status: i32 },
    Serve,
    Needs,
    Tested { path: String },
    Answer { schema: Option<String> },
    Shown,
}

impl Block {
    pub(crate) fn new(place: String, info: &str, text: String) -> Self {
        let mut words = info.split_whitespace();
        let language = words.next().unwrap_or_default().to_owned();
        let check = check(&language, &words.collect::<Vec<_>>(), &text);
        Self {
            place,
            language,
            text,
            check,
        }
    }
}

fn check(language: &str, words: &[&str], text: &str) -> Result<Check, String> {
    match words {
        [] if language == "text" => match text.lines().find(|line| is_command(line)) {
            Some(line) => Err(format!("`{line}` is a command: the language is `sh`")),
            None => Ok(Check::Shown),
        },
        [] if language.is_empty() => Err("a block has a fence and a language".to_owned()),
        [] => Err("nothing says how it is checked: see tests/docs/block.rs".to_owned()),
        [word] => {
            let (word, value) = word
                .split_once('=')
                .map_or((*word, None), |(word, value)| (word, Some(value)));
            check_by(language, word, value)
        }
        _ => Err("more than one word says how it is checked".to_owned()),
    }
}

fn is_command(line: &str) -> bool {
    line.starts_with("$ ") || line.starts_with("fanlight ") && !line.contains("[OPTIONS]")
}

fn check_by(language: &str, word: &str, value: Option<&str>) -> Result<Check, String> {
    match (word, value) {
        ("config", name) => {
            let usual = match language {
                "yaml" => "fanlight.yaml",
                "json" | "jsonc" => "mcp.json",
                "toml" => "config.toml",
                _ => return Err(format!("a configuration in `{language}`")),
            };
            Ok(Check::Config {
                name: name.unwrap_or(usual).to_owned(),
            })
        }
        ("file", Some(name)) => Ok(Check::File {
            name: name.to_owned(),
        }),
        ("run", status) if language == "sh" => {
            let status = status
                .unwrap_or("0")
                .parse()
                .map_err(|_| "the exit status is a number".to_owned())?;
            Ok(Check::Run { status })
        }
        ("serve", None) if language == "sh" => Ok(Check::Serve),
        ("needs", Some(what)) if NEEDS.iter().any(|(name, _)| *name == what) => Ok(Check::Needs),
        ("tested", Some(path)) => Ok(Check::Tested {
            path: path.to_owned(),
        }),
        ("answer", schema) if language == "json" => Ok(Check::Answer {
            schema: schema.map(str::to_owned),
        }),
        _ => Err(format!(
            "`{word}` says nothing about `{language}`: see tests/docs/block.rs"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_of(info: &str) -> Result<Check, String> {
        Block::new("page.md:1".to_owned(), info, "some text".to_owned()).check
    }

    #[test]
    fn block_that_does_not_say_how_it_is_checked_is_refused() {
        for info in [
            "",
            "sh",
            "yaml",
            "json",
            "nginx",
            "sh needs=luck",
            "sh needs",
            "yaml run",
            "sh config",
            "sh run=no",
            "sh run serve",
        ] {
            assert!(check_of(info).is_err(), "{info}");
        }
        assert!(
            Block::new(String::new(), "text", "fanlight run\n".to_owned())
                .check
                .is_err()
        );
    }

    #[test]
    fn block_says_how_it_is_checked() {
        assert_eq!(check_of("text"), Ok(Check::Shown));
        assert_eq!(
            check_of("yaml config"),
            Ok(Check::Config {
                name: "fanlight.yaml".to_owned()
            })
        );
        assert_eq!(
            check_of("yaml config=conf.d/a.yaml"),
            Ok(Check::Config {
                name: "conf.d/a.yaml".to_owned()
            })
        );
        assert_eq!(check_of("sh run=1"), Ok(Check::Run { status: 1 }));
        assert_eq!(check_of("sh needs=docker"), Ok(Check::Needs));
    }
}
