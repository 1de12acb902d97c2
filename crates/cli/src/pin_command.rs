//! `fanlight pin`: approves the servers' current definitions, or compares them with the approved
//! ones.

use std::collections::BTreeMap;
use std::path::Path;

use fanlight_canonical::Endpoint;
use fanlight_config::{Config, PinOptions};
use fanlight_gateway::Gateway;
use fanlight_gateway::pins::{Definition, INSTRUCTIONS, ItemKey, Lock, LockedKind};
use fanlight_protocol::json::Unreadable;
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use serde_json::json;

use crate::cli::{CommonArgs, PinArgs, PinCommand};
use crate::flagged::find_flagged;
use crate::pins::{self, Definitions};
use crate::{Failure, Result, configuration, counted, out, say};

/// Runs `fanlight pin`. `read` starts the servers of a configuration, and reads their
/// [`definitions`].
pub async fn command(
    args: &PinArgs,
    common: &CommonArgs,
    read: impl AsyncFnOnce(&Config) -> Result<Found>,
) -> Result {
    let config = configuration::load(common, true)?.config;
    let PinOptions { path, text, .. } = config.pins.clone();
    let lock = text.map(|text| Lock::parse(&text)).transpose();
    let lock = lock.map_err(|error| usage!("{path}: {error}"))?;
    // Held definitions have to be visible here.
    let mut config = Config {
        pins: PinOptions {
            mode: None,
            ..config.pins
        },
        ..config
    };
    let wanted = match &args.command {
        Some(PinCommand::Approve { items }) => items
            .iter()
            .map(|item| server_of(item))
            .collect::<Result<_, _>>()?,
        None => args.server.clone(),
    };
    if let Some(unknown) = wanted
        .iter()
        .find(|name| config.servers.iter().all(|server| server.name != **name))
    {
        return Err(usage!("no server is called {}", plain(unknown, 60)));
    }
    for server in &mut config.servers {
        server.enabled &= wanted.is_empty() || wanted.contains(&server.name);
    }
    let (found, missing) = read(&config).await?;
    let servers = config
        .servers
        .iter()
        .filter(|server| server.enabled && !missing.contains_key(&server.name))
        .map(|server| server.name.as_str())
        .collect_vec();
    let not_listed = || {
        let mut of_each = missing
            .iter()
            .map(|(server, outcome)| format!("{} ({outcome})", plain(server, 60)));
        let all = of_each.join(", ");
        format!("could not be listed, so their pins stay as they are: {all}")
    };
    if !missing.is_empty() && (servers.is_empty() || args.command.is_some()) {
        return Err(Failure::other(not_listed()));
    }
    match &args.command {
        Some(PinCommand::Approve { items }) => {
            let mut lock = lock.unwrap_or_default();
            approve(&mut lock, items, &found)?;
            write(&path, &lock)
        }
        None if args.check => {
            let lock =
                lock.ok_or_else(|| usage!("{path} does not exist: `fanlight pin` writes it"))?;
            check(&lock, &found, &servers, args.json)?;
            match missing.is_empty() {
                true => Ok(()),
                false => Err(Failure::other(not_listed())),
            }
        }
        None => {
            let mut lock = lock.unwrap_or_default();
            for server in &servers {
                lock.forget(server);
                lock.begin(server);
            }
            for (key, definition) in &found {
                lock.pin(key, readable(key, definition)?);
            }
            say_flags(&found);
            write(&path, &lock)?;
            say!(
                "{}: {} of {} pinned",
                path,
                counted(found.len(), "definition"),
                counted(servers.len(), "server")
            );
            if !missing.is_empty() {
                say!("{}", not_listed());
            }
            Ok(())
        }
    }
}

/// The server that an item belongs to.
fn server_of(item: &str) -> Result<String> {
    item.split_once('/')
        .map(|(server, _)| server.to_owned())
        .ok_or_else(|| {
            let item = plain(item, 60);
            usage!("{item} names no server: write server/name, with the server's own name for it")
        })
}

/// A definition that can be approved.
fn readable<'a>(
    key: &ItemKey,
    definition: &'a Result<Definition, Unreadable>,
) -> Result<&'a Definition> {
    definition.as_ref().map_err(|unreadable| {
        let (key, unreadable) = (key.to_string(), unreadable.to_string());
        failure!(
            "{} cannot be approved, since programs could read it differently: {}",
            plain(&key, 120),
            plain(&unreadable, 200)
        )
    })
}

/// The definitions of servers, and the servers that could not be listed, with the reasons.
pub type Found = (Definitions, BTreeMap<String, &'static str>);

/// The definitions in all servers' lists, and the servers' instructions.
pub async fn definitions(gateway: &Gateway) -> Found {
    let (mut found, mut skipped) = (Definitions::new(), BTreeMap::new());
    for (kind, locked) in pins::locked_lists() {
        let list = gateway.catalogue(kind, &Endpoint::Everything).await;
        let missing = list
            .contributions()
            .filter(|one| one.outcome != fanlight_canonical::Outcome::Ok);
        skipped.extend(missing.map(|one| (one.backend.clone(), one.outcome.as_str())));
        for entry in list.entries() {
            let name = entry.original.as_ref().and_then(|name| name.as_str());
            let (Some(name), Some(given)) = (name, list.original_entry(entry)) else {
                continue;
            };
            let key = ItemKey {
                server: list.backend_of(entry).to_owned(),
                kind: locked,
                name: name.into_owned(),
            };
            found.insert(key, Definition::parse(&given));
        }
        for left_out in list.unreadable_entries() {
            let key = ItemKey {
                server: left_out.backend.clone(),
                kind: locked,
                name: left_out.name.clone(),
            };
            found.insert(key, Err(left_out.why.clone()));
        }
    }
    for server in gateway.shown_backends(&Endpoint::Everything) {
        let Some(description) = gateway.description_of(&server).await.flatten() else {
            continue;
        };
        let instructions = match description.find(["instructions"]) {
            Ok([place]) => place.map(|place| description.slice(place)),
            // A repeated member makes the whole description unreadable.
            Err(_) => Some(description),
        };
        if let Some(instructions) = instructions {
            let key = ItemKey {
                server,
                kind: LockedKind::Instructions,
                name: INSTRUCTIONS.to_owned(),
            };
            found.insert(key, Definition::parse(&instructions));
        }
    }
    // A server with a missing list is left out as a whole.
    found.retain(|key, _| !skipped.contains_key(&key.server));
    (found, skipped)
}

fn approve(lock: &mut Lock, items: &[String], found: &Definitions) -> Result {
    for item in items {
        let is_it = |key: &&ItemKey| format!("{}/{}", key.server, key.name) == *item;
        let mut any = false;
        for (key, definition) in found.iter().filter(|(key, _)| is_it(key)) {
            let definition = readable(key, definition)?;
            let pinned = lock.get(&key.server, key.kind, &key.name);
            let difference = pinned.and_then(|pinned| pinned.definition.difference(definition));
            lock.pin(key, definition);
            say!("approved: {}", plain(&key.to_string(), 120));
            say_reasons(difference.iter().flat_map(|(_, lines)| lines));
            any = true;
        }
        let gone = lock
            .all()
            .map(|(key, _)| key)
            .filter(|key| is_it(&key) && !found.contains_key(key))
            .collect_vec();
        for key in gone {
            lock.unpin(&key);
            say!(
                "no longer pinned, since it is gone: {}",
                plain(&key.to_string(), 120)
            );
            any = true;
        }
        if !any {
            return Err(Failure::not_found(format!(
                "no definition is called {}",
                plain(item, 120)
            )));
        }
    }
    Ok(())
}

/// Prints the differences from the approved definitions; fails if there are any.
fn check(lock: &Lock, found: &Definitions, servers: &[&str], json: bool) -> Result {
    let mut differing = Vec::new();
    for (key, definition) in found {
        let approved = lock.get(&key.server, key.kind, &key.name);
        let Some((what, reasons)) = pins::difference(approved, definition) else {
            continue;
        };
        let is_unknown = what == pins::NEW && !lock.has_server(&key.server);
        let what = if is_unknown { "not pinned" } else { what };
        differing.push((key.clone(), what, reasons));
    }
    let gone = lock
        .all()
        .map(|(key, _)| key)
        .filter(|key| !found.contains_key(key));
    let gone = gone.filter(|key| servers.contains(&key.server.as_str()));
    differing.extend(gone.map(|key| (key, "gone", Vec::new())));
    if json {
        let all = differing
            .iter()
            .map(|(key, what, reasons)| {
                json!({ "server": key.server, "kind": key.kind.as_str(), "name": key.name, "what": what, "reasons": reasons })
            })
            .collect_vec();
        out::pretty(&json!({ "differences": all }));
    } else {
        for (key, what, reasons) in &differing {
            say!("{what}: {}", plain(&key.to_string(), 120));
            say_reasons(reasons);
        }
        say_flags(found);
    }
    if differing.is_empty() {
        if !json {
            say!("{} as approved", counted(found.len(), "definition"));
        }
        return Ok(());
    }
    Err(failure!(
        "{} not as approved",
        counted(differing.len(), "definition")
    ))
}

fn say_reasons<'a>(reasons: impl IntoIterator<Item = &'a String>) {
    reasons
        .into_iter()
        .for_each(|reason| say!("  {}", plain(reason, 200)));
}

/// Prints suspicious definitions.
fn say_flags(found: &Definitions) {
    find_flagged(found)
        .iter()
        .for_each(|flagged| say!("{}", flagged.line()));
}

fn write(path: &str, lock: &Lock) -> Result {
    pins::write(Path::new(path), lock)
        .map_err(|error| failure!("{path}: cannot be written: {error}"))
}
