//! The file with keys: accepted and refused texts, and changes that keep the rest of the file.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use fanlight_config::{Key, parse_keys, parse_moment, with_key, without_keys};
use proptest::prelude::*;

fn digest(digit: char) -> String {
    digit.to_string().repeat(64)
}

fn key(name: &str, byte: u8) -> Key {
    Key {
        name: name.to_owned(),
        sha256: [byte; 32],
        groups: Vec::new(),
        scopes: None,
        expires: None,
        endpoints: None,
    }
}

fn read(text: &str) -> Result<Vec<Key>, String> {
    let keys = parse_keys(text, Path::new("keys.yaml")).map_err(|errors| errors.render(false))?;
    Ok(keys.keys)
}

#[test]
fn entries_are_read() {
    let text = format!(
        "keys:\n- name: ci\n  sha256: {}\n- {{name: a.b@c, sha256: '{}', groups: [x, y], scopes: mcp:read, \
         expires: 2027-01-31, endpoints: [/mcp]}}\n",
        digest('a'),
        digest('F'),
    );
    let keys = read(&text).unwrap();
    assert_eq!(keys[0], key("ci", 0xaa));
    let expires = UNIX_EPOCH + Duration::from_secs(1_801_353_600);
    assert_eq!(
        keys[1],
        Key {
            groups: vec!["x".into(), "y".into()],
            scopes: Some(vec!["mcp:read".into()]),
            expires: Some(expires),
            endpoints: Some(vec!["/mcp".into()]),
            ..key("a.b@c", 0xff)
        }
    );
    for empty in ["", "\n# keys of clients\n", "keys:\n", "keys: []"] {
        assert_eq!(read(empty).unwrap(), [], "{empty:?}");
    }
}

#[test]
fn mistakes_are_reported_with_their_positions_and_without_secrets() {
    for (text, message) in [
        (
            "keys: {a: b}",
            "error: `keys` must be a list, not a mapping\n --> keys.yaml:1:7",
        ),
        ("key:\n", "did you mean `keys`?"),
        (
            "keys:\n- name: ci\n",
            "error: `sha256` is missing in an entry of `keys`\n --> keys.yaml:2:3",
        ),
        (
            &format!("keys:\n- sha256: '{}'", digest('0')),
            "error: `name` is missing in an entry of `keys`\n --> keys.yaml:2:3",
        ),
        ("keys:\n- name: a b\n", "cannot be the name of a key"),
        (
            "keys:\n- name: a\n  sha256: fanlight_s3cret\n",
            "error: this is not a SHA-256 digest\n --> keys.yaml:3:11",
        ),
        (
            "keys:\n- name: a\n  expires: tomorrow\n",
            "`tomorrow` is not a moment",
        ),
        (
            "keys:\n- name: a\n  endpoints: [mcp]\n",
            "is not the path of an endpoint",
        ),
        ("keys:\n- name: a\n  scope: [x]\n", "did you mean `scopes`?"),
        (
            &format!(
                "keys:\n- {{name: a, sha256: '{0}'}}\n- {{name: b, sha256: '{0}'}}",
                digest('0')
            ),
            "is there twice (first on line 2)",
        ),
    ] {
        let errors = read(text).unwrap_err();
        assert!(
            errors.contains(message) && !errors.contains("s3cret"),
            "{errors}"
        );
    }
    let many: String = (0..10_001)
        .map(|number| format!("- {{name: a, sha256: '{number:064}'}}\n"))
        .collect();
    assert!(
        read(&format!("keys:\n{many}"))
            .unwrap_err()
            .contains("at most 10000 are allowed")
    );
}

#[test]
fn key_is_added_and_removed_without_touching_the_rest() {
    let new = Key {
        scopes: Some(vec!["mcp:read".into()]),
        ..key("ci", 0x11)
    };
    let one =
        "# Keys of the team.\nkeys:\n  # Ann's laptop\n  - name: ann # since May\n    sha256: "
            .to_owned()
            + &digest('a')
            + "\n\n# The end.\n";
    let with = with_key(&one, &new).unwrap().unwrap();
    assert!(
        with.starts_with(one.split("\n\n").next().unwrap()) && with.ends_with("\n\n# The end.\n"),
        "{with}"
    );
    assert_eq!(read(&with).unwrap(), [key("ann", 0xaa), new.clone()]);
    assert_eq!(
        without_keys(&with, &|key| key.name == "ci").unwrap(),
        (Some(one.clone()), 1)
    );
    let (none, gone) = without_keys(&with, &|_| true).unwrap();
    let none = none.unwrap();
    assert!(
        gone == 2 && none.contains("# Ann's laptop") && read(&none).unwrap().is_empty(),
        "{none}"
    );
    assert_eq!(
        read(&with_key(&none, &new).unwrap().unwrap()).unwrap(),
        std::slice::from_ref(&new)
    );
    for start in [
        "",
        "# nothing yet",
        "keys:\n",
        "keys: # none\n",
        "keys: []\n",
        "keys: [] # none",
        "keys:\n- name: x\n  sha256: '00'",
    ] {
        if let Ok(before) = read(start) {
            let with = with_key(start, &new).unwrap().unwrap();
            assert_eq!(
                read(&with).unwrap(),
                [before, vec![new.clone()]].concat(),
                "{with}"
            );
        } else {
            assert!(with_key(start, &new).is_err());
        }
    }
    let flow = format!("keys: [{{name: a, sha256: '{}'}}]\n", digest('0'));
    assert_eq!(with_key(&flow, &new).unwrap(), None, "to be added by hand");
    assert_eq!(without_keys(&flow, &|_| true).unwrap(), (None, 1));
    assert_eq!(without_keys(&one, &|_| false).unwrap(), (Some(one), 0));
}

#[test]
fn moments_are_absolute_or_from_now() {
    let now = UNIX_EPOCH + Duration::from_secs(1000);
    assert_eq!(
        parse_moment("90d", now),
        Some(now + Duration::from_secs(90 * 86_400))
    );
    assert_eq!(
        parse_moment("1h30m", now),
        Some(now + Duration::from_secs(5400))
    );
    assert_eq!(
        parse_moment("1970-01-02", now),
        Some(UNIX_EPOCH + Duration::from_secs(86_400))
    );
    assert_eq!(
        parse_moment("1970-01-02T00:00:01Z", now),
        Some(UNIX_EPOCH + Duration::from_secs(86_401))
    );
    for text in [
        "",
        "90",
        "soon",
        "-1d",
        "1970-13-01",
        "9999999999d",
        "99999999999999999999d",
    ] {
        assert_eq!(parse_moment(text, now), None, "{text}");
    }
}

proptest! {
    /// Whatever the file contains, a change results in exactly the expected keys, or is refused.
    #[test]
    fn changes_are_right_or_refused(text in "(keys:( #c| \\[\\])?\n)?([ ]{0,3}(- name: [a-c]|  sha256: '[01]{64}'|# c|- \\{name: b, sha256: '[0-9]{64}'\\}|)\n){0,6}") {
        let new = key("new", 0x55);
        if let (Ok(before), Ok(Some(changed))) = (read(&text), with_key(&text, &new)) {
            prop_assert_eq!(read(&changed).unwrap(), [before, vec![new]].concat());
        }
        if let (Ok(before), Ok((Some(changed), gone))) = (read(&text), without_keys(&text, &|key| key.name == "b")) {
            let left: Vec<_> = before.iter().filter(|key| key.name != "b").cloned().collect();
            prop_assert_eq!(before.len() - left.len(), gone);
            prop_assert_eq!(read(&changed).unwrap(), left);
        }
    }
}
