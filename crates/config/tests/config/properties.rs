//! Arbitrary text never causes a panic, and every reported position lies within the text.

use std::path::Path;

use fanlight_config::parse;
use proptest::prelude::*;

use crate::env;

/// Pieces that make a text more likely to pass the syntax check.
const PIECES: &[&str] = &[
    "mcpServers",
    "servers",
    "command",
    "url",
    "env",
    "headers",
    "args",
    "limits",
    "timeouts",
    "tools",
    "allow",
    "type",
    "admin",
    "listen",
    ": ",
    ":",
    "- ",
    "\n",
    "\r\n",
    "  ",
    "\t",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "&a ",
    "*a",
    "${",
    "}",
    "${T}",
    "${MISSING}",
    "${A:-",
    "$$",
    "|",
    ">",
    "!",
    "!!str ",
    "#",
    "// ",
    "/*",
    "null",
    "true",
    "1",
    "-1e9",
    "http://e.com",
    "127.0.0.1:1",
    "é",
    "😀",
    "\u{85}",
    "\u{2028}",
    "\\u12",
    "\\",
    "?",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "@",
    "<<",
];

fn check(text: &str) -> Result<(), TestCaseError> {
    for name in ["f.yaml", "f.json"] {
        let problems = match parse(text, Path::new(name), &env) {
            Ok(loaded) => loaded.warnings,
            Err(errors) => {
                prop_assert!(!errors.problems().is_empty());
                prop_assert!(!errors.render(false).contains('\x1b'));
                errors.problems().to_vec()
            }
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for problem in problems {
            let at = problem.position().unwrap();
            let line = text.split('\n').nth(at.line - 1);
            prop_assert!(line.is_some_and(|line| at.column <= line.chars().count() + 1));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn text_like_a_config_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        check(&pieces.concat())?;
    }

    #[test]
    fn damaged_examples_never_panic(
        name in prop::sample::select(crate::examples::names()),
        at in any::<prop::sample::Index>(),
        length in 0_usize..8,
        piece in prop::sample::select(PIECES),
    ) {
        let text = std::fs::read_to_string(crate::examples::folder().join(name)).unwrap();
        let mut chars: Vec<char> = text.chars().collect();
        let start = at.index(chars.len());
        let end = (start + length).min(chars.len());
        chars.splice(start..end, piece.chars());
        check(&chars.into_iter().collect::<String>())?;
    }
}
