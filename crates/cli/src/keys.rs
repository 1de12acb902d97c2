//! `fanlight keys`: creates, lists and revokes client keys in the file that `auth.keys` names. A
//! running gateway reloads the changed file by itself.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fanlight_auth::{NewKey, key_digest};
use fanlight_config::{
    Key, key_file, load_keys, parse_keys, parse_moment, with_key, without_keys, written_moment,
};
use serde_json::json;

use crate::cli::{CommonArgs, KeyFileArgs, KeysCommand, NewKeyArgs};
use crate::observe::columns::render_rows;
use crate::replace::{self, NewFile};
use crate::{Failure, Result, complain, configuration, counted, out, say};

/// Runs a subcommand of `fanlight keys`.
pub fn keys(command: &KeysCommand, common: &CommonArgs) -> Result {
    match command {
        KeysCommand::New(args) => new(args, common),
        KeysCommand::List { json, file } => list(&find_file(file, common)?, *json),
        KeysCommand::Revoke {
            name,
            sha256,
            json,
            file,
        } => revoke(&find_file(file, common)?, name, sha256.as_deref(), *json),
    }
}

/// Creates a key and prints it on standard output. Explanations go to standard error.
fn new(args: &NewKeyArgs, common: &CommonArgs) -> Result {
    let file = if args.print {
        None
    } else {
        Some(find_file(&args.file, common)?)
    };
    let secret = NewKey::make().ok_or_else(|| failure!("the system has no random numbers"))?;
    let some = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    let expires = match args.expires.as_deref() {
        None | Some("never") => None,
        Some(text) => Some(parse_moment(text, SystemTime::now()).ok_or_else(|| {
            let help = "write how long it lasts, such as 90d or 12h, a day in UTC such as 2027-01-31, or never";
            usage!("{text:?} is not a time at which a key can expire: {help}")
        })?),
    };
    if expires.is_some_and(|expires| expires <= SystemTime::now()) {
        return Err(usage!("the key would have expired already"));
    }
    let key = Key {
        name: args.name.clone(),
        sha256: key_digest(secret.text()),
        groups: args.groups.clone(),
        scopes: some(&args.scopes),
        expires,
        endpoints: some(&args.endpoints),
    };
    let entry = key.entry("  ");
    // Report typing errors before the key exists.
    parse_keys(&format!("keys:\n{entry}"), Path::new("the new key"))
        .map_err(|errors| Failure::usage(errors.render(false)))?;
    let print = |about: &str| {
        if args.json {
            let entry = entry_json(&key, SystemTime::now());
            out::pretty(&json!({ "key": secret.text(), "entry": entry }));
        } else {
            complain(about);
            say!("{}", secret.text());
        }
    };
    let Some(file) = file else {
        print(&format!("keys:\n{entry}"));
        return Ok(());
    };
    change(&file, |text| {
        let by_hand = || {
            let shown = file.display();
            failure!("{shown} is not a YAML list with `-`, so add this by hand:\n{entry}")
        };
        let text = with_key(text, &key)?;
        text.ok_or_else(by_hand)
    })?;
    print(&format!(
        "added to {}:\n{entry}the key (shown only now, stored nowhere):\n",
        file.display()
    ));
    Ok(())
}

fn list(file: &Path, as_json: bool) -> Result {
    let keys = load_keys(file)?.keys;
    let now = SystemTime::now();
    if as_json {
        let keys: Vec<_> = keys.iter().map(|key| entry_json(key, now)).collect();
        out::pretty(&json!(keys));
        return Ok(());
    }
    if keys.is_empty() {
        say!(
            "{}: no keys; `fanlight keys new NAME` creates one",
            file.display()
        );
        return Ok(());
    }
    let mut rows = Vec::new();
    let all = |list: &Option<Vec<String>>| {
        list.as_ref()
            .map_or_else(|| "all".to_owned(), |list| list.join(" "))
    };
    for key in &keys {
        let expires = match key.expires {
            None => "never".to_owned(),
            Some(expires) if expires <= now => format!("{} (expired)", written_moment(expires)),
            Some(expires) => written_moment(expires),
        };
        let digest = key.digest().chars().take(12).collect();
        rows.push([
            key.name.clone(),
            digest,
            key.groups.join(" "),
            all(&key.scopes),
            all(&key.endpoints),
            expires,
        ]);
    }
    let headings = ["NAME", "SHA256", "GROUPS", "SCOPES", "ENDPOINTS", "EXPIRES"];
    say!("{}", render_rows(headings, &rows));
    Ok(())
}

fn entry_json(key: &Key, now: SystemTime) -> serde_json::Value {
    json!({
        "name": key.name,
        "sha256": key.digest(),
        "groups": key.groups,
        "scopes": key.scopes,
        "endpoints": key.endpoints,
        "expires": key.expires.map(written_moment),
        "expired": key.expires.is_some_and(|expires| expires <= now),
    })
}

/// Removes the keys of this name; given the beginning of a digest, only the matching ones.
fn revoke(file: &Path, name: &str, digest: Option<&str>, as_json: bool) -> Result {
    let digest = digest.map(str::to_ascii_lowercase);
    let is_gone = |key: &Key| {
        key.name == name
            && digest
                .as_ref()
                .is_none_or(|digest| key.digest().starts_with(digest))
    };
    let mut count = 0;
    change(file, |text| {
        let (text, gone) = without_keys(text, &is_gone)?;
        count = gone;
        if gone == 0 {
            let which = if digest.is_some() {
                "with this name and digest"
            } else {
                "with this name"
            };
            return Err(Failure::not_found(format!(
                "{} has no key {which}",
                file.display()
            )));
        }
        text.ok_or_else(|| {
            let shown = file.display();
            failure!("{shown} is not a YAML list with `-`, so remove the key by hand")
        })
    })?;
    if as_json {
        out::json(
            &json!({ "name": name, "revoked": count, "file": file.display().to_string() })
                .to_string(),
        );
    } else {
        say!(
            "{} of {name} revoked in {}",
            counted(count, "key"),
            file.display()
        );
    }
    Ok(())
}

/// The file named on the command line, or else in the configuration.
fn find_file(args: &KeyFileArgs, common: &CommonArgs) -> Result<PathBuf> {
    if let Some(path) = &args.file {
        return Ok(path.clone());
    }
    let paths = configuration::paths(common).unwrap_or_default();
    let found = key_file(&paths, &configuration::variable)?;
    found.ok_or_else(|| {
        let why = if paths.is_empty() {
            "there is no configuration"
        } else {
            "the configuration has no `auth.keys`"
        };
        usage!(
            "{why}: add `auth: {{keys: {{file: keys.yaml}}}}` to it, or name the file with --file"
        )
    })
}

/// Replaces the file's text with the result of `change`, as a whole or not at all. A new file
/// is readable only by its owner; an existing one keeps its owner and mode.
fn change(file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result {
    let cannot =
        |what: &str, error: std::io::Error| failure!("cannot {what} {}: {error}", file.display());
    // If the name is a link, change the file that it points to.
    let path = replace::target(file);
    // Lock the folder: of two simultaneous commands, one would lose the other's change.
    let lock = File::open(replace::folder_of(&path)).map_err(|error| cannot("write", error))?;
    lock.lock()
        .map_err(|error| cannot("lock the folder of", error))?;
    let before = replace::read(&path).map_err(|error| cannot("read", error))?;
    let text = change(before.as_deref().unwrap_or_default())?;
    parse_keys(&text, file)?;
    replace::replace(&path, &text, NewFile::OfOwner).map_err(|error| cannot("write", error))
}
