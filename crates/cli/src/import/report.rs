//! The report of `fanlight import`.

use std::path::Path;

use itertools::Itertools as _;
use serde_json::{Value, json};

use super::merge::Taken;
use super::{Import, tell, text};
use crate::cli::ImportArgs;
use crate::connect::{machine_places, shown_path};
use crate::observe::columns::render_rows;
use crate::{counted, out};

/// Prints the imported servers. `is_written` tells whether the configuration was written.
pub(super) fn show(import: &Import, args: &ImportArgs, is_written: bool) {
    if args.json {
        out::pretty(&to_json(import, is_written));
        return;
    }
    let places = machine_places();
    let shown = |path: &Path| shown_path(places.as_ref(), path);
    if !import.taken.is_empty() {
        let mut rows = Vec::new();
        for server in &import.taken {
            let mut cells = [server.name.clone(), reached_by(&server.value)];
            for place in &server.from {
                let [name, reached_by] = std::mem::take(&mut cells);
                rows.push([name, reached_by, describe_place(server, place, &shown)]);
            }
        }
        tell(args, &render_rows(["SERVER", "REACHED BY", "FROM"], &rows));
    }
    for left in &import.left_out {
        tell(
            args,
            &format!("left out, {}: {}", shown(&left.path), left.reason),
        );
    }
    if !is_written {
        return;
    }
    if let Some(path) = &import.output {
        let servers = counted(import.taken.len(), "server");
        tell(args, &format!("\nwrote {}: {servers}", shown(path)));
    }
    if let Some(path) = &import.env_file {
        let secrets = counted(import.moved.variables.len(), "secret");
        tell(
            args,
            &format!(
                "wrote {}: {secrets}, readable only by its owner",
                shown(path)
            ),
        );
    }
    for (name, about) in missing_variables(import) {
        let about = if about.is_empty() {
            String::new()
        } else {
            format!(": {about}")
        };
        tell(args, &format!("set the variable {name}{about}"));
    }
    let is_of_client = import.sources.iter().any(|source| source.client.is_some());
    let more = if is_of_client {
        ", and remove these servers from the clients"
    } else {
        ""
    };
    tell(
        args,
        &format!("next: `fanlight check`, then `fanlight connect`{more}"),
    );
}

/// The place of a server, with the server's name there if it differs.
fn describe_place(
    server: &Taken,
    place: &super::merge::Place,
    shown: &dyn Fn(&Path) -> String,
) -> String {
    let name = if place.name == server.name {
        String::new()
    } else {
        format!(" ({})", place.name)
    };
    let title = if place.title.is_empty() {
        String::new()
    } else {
        format!("{}, ", place.title)
    };
    format!("{title}{}{name}", shown(&place.path))
}

/// The program or the host, without arguments and paths, which may be secret.
fn reached_by(value: &Value) -> String {
    let is_off = value["enabled"] == false;
    let how = match (value.get("command"), value.get("url")) {
        (Some(Value::String(command)), _) => command.clone(),
        (_, Some(Value::String(url))) => {
            let parsed = url::Url::parse(url).ok();
            let host = parsed
                .as_ref()
                .and_then(|url| Some(format!("{}://{}", url.scheme(), url.host_str()?)));
            host.unwrap_or_else(|| "URL".to_owned())
        }
        _ => String::new(),
    };
    if is_off {
        format!("{how} (switched off)")
    } else {
        how
    }
}

/// The variables that have no value yet, each with its description.
fn missing_variables(import: &Import) -> Vec<(String, String)> {
    let mut names = Vec::new();
    import
        .taken
        .iter()
        .for_each(|server| text::variables(&server.value, &mut names));
    let is_written = |name: &String| {
        import.env_file.is_some()
            && import
                .moved
                .variables
                .iter()
                .any(|(known, _)| known == name)
    };
    let about = |name: &String| {
        let mut known = import.sources.iter().flat_map(|source| &source.variables);
        known
            .find(|(known, _)| known == name)
            .map(|(_, about)| about.clone())
            .unwrap_or_default()
    };
    let is_missing = |name: &String| std::env::var_os(name).is_none() && !is_written(name);
    names
        .into_iter()
        .filter(is_missing)
        .map(|name| (name.clone(), about(&name)))
        .collect()
}

fn to_json(import: &Import, is_written: bool) -> Value {
    let server = |server: &Taken| {
        let from = server
            .from
            .iter()
            .map(|place| json!({"source": place.title, "file": place.path.display().to_string(), "name": place.name}));
        json!({
            "name": server.name,
            "reachedBy": reached_by(&server.value),
            "enabled": server.value["enabled"] != false,
            "from": from.collect_vec(),
        })
    };
    let path =
        |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.display().to_string());
    json!({
        "written": is_written,
        "output": path(&import.output),
        "envFile": path(&import.env_file),
        "servers": import.taken.iter().map(server).collect_vec(),
        "leftOut": import.left_out.iter().map(|left| json!({"file": left.path.display().to_string(), "reason": left.reason})).collect_vec(),
        "moved": import.moved.variables.iter().map(|(name, _)| name).collect_vec(),
        "missing": missing_variables(import).into_iter().map(|(name, about)| json!({"name": name, "about": about})).collect_vec(),
        "text": import.output.is_none().then_some(&import.text),
    })
}
