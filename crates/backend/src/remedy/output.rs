//! Rules based on a process's output before it failed.

use fanlight_canonical::{FailureDetails, Remedy, RemedyKind};

use super::{program_name, remedy};
use crate::transport::stdio::ProcessSettings;

/// A remedy for output that contains one of these lower-case texts, if the process's program is one
/// of these, or for any program.
struct Rule {
    programs: &'static [&'static str],
    texts: &'static [&'static str],
    kind: RemedyKind,
    remedy: &'static str,
}

/// Programs that fetch a package before they run it.
const FETCHING: &[&str] = &[
    "npx", "npm", "pnpm", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "deno",
];
const CONTAINERS: &[&str] = &["docker", "podman"];

const RULES: &[Rule] = &[
    Rule {
        programs: CONTAINERS,
        texts: &[
            "cannot connect to the docker daemon",
            "is the docker daemon running",
            "unable to connect to podman",
        ],
        kind: RemedyKind::Program,
        remedy: "check that Docker is running, and that the gateway's user may use it",
    },
    Rule {
        programs: CONTAINERS,
        texts: &["input device is not a tty"],
        kind: RemedyKind::Configuration,
        remedy: "leave `-t` out of `args`: a server over standard input and output has no terminal",
    },
    Rule {
        programs: FETCHING,
        texts: &[
            "e404",
            "404 not found",
            "not found in the package registry",
            "was not found in the",
            "no matching version",
            "etarget",
        ],
        kind: RemedyKind::Configuration,
        remedy: "there is no package of this name or version: compare `args` with the server's documentation",
    },
    Rule {
        programs: FETCHING,
        texts: &[
            "eai_again",
            "enotfound",
            "econnrefused",
            "econnreset",
            "etimedout",
            "failed to fetch",
            "dns error",
            "network is unreachable",
            "self-signed certificate",
            "unable to get local issuer",
            "invalid peer certificate",
        ],
        kind: RemedyKind::Address,
        remedy: "its package could not be fetched: check the network; variables such as HTTPS_PROXY, NPM_CONFIG_REGISTRY and \
                 NODE_EXTRA_CA_CERTS reach it only through `env` or `inheritEnv`",
    },
    Rule {
        programs: &[],
        texts: &[
            "eaddrinuse",
            "address already in use",
            "listening on http",
            "running on http",
            "listening on port",
        ],
        kind: RemedyKind::Configuration,
        remedy: "it serves over HTTP: have it serve over standard input and output (often `--stdio` or `--transport stdio`), \
                 or start it yourself and configure its `url`",
    },
    Rule {
        programs: &[],
        texts: &[
            "environment variable",
            "api key",
            "api_key",
            "apikey",
            "missing credentials",
        ],
        kind: RemedyKind::Configuration,
        remedy: "it seems to need a variable: set it in `env`; from the gateway's own environment it gets only the \
                 variables in `inheritEnv`",
    },
    Rule {
        programs: &["node", "bun", "deno", "tsx", "ts-node"],
        texts: &[
            "cannot find module",
            "module not found",
            "err_module_not_found",
        ],
        kind: RemedyKind::Configuration,
        remedy: "the file in `args` or a module that it needs is missing: paths are relative to `cwd`, and `npm install` in \
                 the server's folder installs its modules",
    },
    Rule {
        programs: &[],
        texts: &[
            "cannot find module",
            "modulenotfounderror",
            "no module named",
            "importerror",
        ],
        kind: RemedyKind::Program,
        remedy: "a module that it needs is not installed, or `command` is not the program in its virtual environment: write \
                 that program's whole path",
    },
    Rule {
        programs: &[],
        texts: &["can't open file", "no such file or directory", "enoent"],
        kind: RemedyKind::Configuration,
        remedy: "a file is missing: paths in `args` are relative to `cwd`, and `~` does not mean the home folder",
    },
    Rule {
        programs: &[],
        texts: &[
            "command not found",
            ": not found",
            "executable file not found",
        ],
        kind: RemedyKind::Program,
        remedy: "it starts a program that is not in its PATH: install that, or set PATH in `env`",
    },
    Rule {
        programs: &[],
        texts: &["permission denied", "eacces", "operation not permitted"],
        kind: RemedyKind::Program,
        remedy: "it may not use a file: check the permissions of the gateway's user, and its `sandbox` if it has one",
    },
    Rule {
        programs: &[],
        texts: &[
            "unrecognized argument",
            "unknown option",
            "unexpected argument",
            "invalid option",
            "usage:",
        ],
        kind: RemedyKind::Configuration,
        remedy: "it does not accept its arguments: compare `args` with its documentation",
    },
];

/// The remedy of the first matching rule.
pub(super) fn rule(settings: &ProcessSettings, output: &FailureDetails) -> Option<Remedy> {
    let program = program_name(settings);
    let program = program
        .strip_suffix(".cmd")
        .or(program.strip_suffix(".exe"))
        .unwrap_or(&program);
    let lines: Vec<String> = output
        .stderr
        .iter()
        .chain(&output.stdout)
        .map(|line| line.to_lowercase())
        .collect();
    let fits = |rule: &&Rule| {
        (rule.programs.is_empty() || rule.programs.contains(&program))
            && lines
                .iter()
                .any(|line| rule.texts.iter().any(|text| line.contains(text)))
    };
    RULES
        .iter()
        .find(fits)
        .and_then(|rule| remedy(rule.kind, rule.remedy))
}
