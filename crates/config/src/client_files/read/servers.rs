//! One server. Its members may have the names of any program; the program of the file decides only
//! units and the notation of variables.

use crate::document::{Entry, Node, Value};

use super::Note;
use super::build::{
    Unit, find, is_comment, map_texts, normalize_word, put, replace_value, switch_off, text,
    time_limit, with_members,
};
use super::program::Program;
use crate::client_files::client::Client;

/// Members that only matter to their client: how it shows a server, and its own approvals.
const OF_CLIENTS: [&str; 34] = [
    "alwaysallow",
    "autoapprove",
    "autostart",
    "bundled",
    "chatmenu",
    "configsample",
    "createdat",
    "description",
    "dev",
    "disabledautoapprovetools",
    "displayname",
    "dxtversion",
    "fromgalleryid",
    "gallery",
    "icon",
    "iconpath",
    "installsource",
    "istrusted",
    "logenabled",
    "logourl",
    "longrunning",
    "metadata",
    "panicifinvalid",
    "provider",
    "providerurl",
    "reference",
    "required",
    "searchkey",
    "serverinstructions",
    "shouldconfig",
    "startonlaunch",
    "title",
    "trust",
    "version",
];

/// One server. A value that is no mapping is kept, to be reported.
pub(super) fn server(program: &Program, entry: &Entry, notes: &mut Vec<Note>) -> Entry {
    let Value::Map(members) = &entry.value.value else {
        return entry.clone();
    };
    let mut reading = Reading {
        program,
        server: &entry.value,
        members: Vec::new(),
        notes,
    };
    members.iter().for_each(|member| reading.add(member));
    let mut members = reading.members;
    let has = |members: &[Entry], key: &str| members.iter().any(|member| member.key == key);
    // In Gemini CLI and its relatives, `url` is for the older transport.
    let is_gemini = program.contains(Client::Gemini) || program.title == Program::QWEN.title;
    let has_http = is_gemini && has(&members, "httpUrl");
    members.retain(|member| !(has_http && matches!(member.key.as_str(), "url" | "type")));
    // Goose writes both kinds of members into every entry.
    let is_url = program.contains(Client::Goose) && has(&members, "url");
    members.retain(|member| !is_url || !matches!(member.key.as_str(), "inheritEnv" | "env"));
    let flag = |key: &str, flag: bool| {
        let is_it = |member: &Entry| {
            member.key == key && matches!(member.value.value, Value::Bool(value) if value == flag)
        };
        members.iter().any(is_it)
    };
    let (has_both, is_off) = (
        has(&members, "enabled") && has(&members, "disabled"),
        flag("enabled", false) || flag("disabled", true),
    );
    if has_both && !is_off {
        members.retain(|member| member.key != "disabled");
    }
    let mut entry = with_members(entry, members);
    if has_both && is_off {
        switch_off(&mut entry);
    }
    entry
}

/// The state of translating one server.
struct Reading<'r> {
    program: &'r Program,
    server: &'r Node,
    members: Vec<Entry>,
    notes: &'r mut Vec<Note>,
}

impl Reading<'_> {
    /// Adds a member as it is written.
    fn add(&mut self, written: &Entry) {
        let member = Entry {
            value: map_texts(&written.value, &self.program.notation),
            ..written.clone()
        };
        self.warn_of_shell(&member);
        let word = normalize_word(&member.key);
        if is_comment(&member.key) || self.is_empty_reach(&word, &member.value) {
            return;
        }
        let is_known = !self.program.title.is_empty();
        match (word.as_str(), &member.value.value) {
            (word, _) if is_known && OF_CLIENTS.contains(&word) => {}
            ("name" | "id" | "key" | "source" | "settings", _) if is_known => {}
            // Most programs write null for absent values.
            (_, Value::Null) if is_known => {}
            ("command" | "cmd", Value::List(words)) => {
                if let Some((program, args)) = words.split_first() {
                    let program = Entry {
                        value: program.clone(),
                        ..member.clone()
                    };
                    self.put("command", &program);
                    self.put(
                        "args",
                        &replace_value(&member, "args", Value::List(args.to_vec())),
                    );
                }
            }
            (
                "command" | "transport" | "options" | "requestoptions" | "requestinit"
                | "anythingllm",
                Value::Map(parts),
            ) => {
                for part in parts {
                    match part.key.as_str() {
                        "path" => self.put("command", part),
                        _ => self.add(part),
                    }
                }
            }
            ("command" | "cmd", _) => self.put("command", &member),
            ("args", _) => self.put("args", &member),
            ("env" | "envs" | "environment", Value::Map(_)) => self.put_pairs("env", &member),
            ("envvars", Value::Map(_)) => self.put_pairs("env", &member),
            // Goose keeps the values in the system's keyring.
            ("envkeys" | "envvars" | "inheritenv", Value::List(names)) => {
                let names = names.iter().map(name_of).collect();
                self.put(
                    "inheritEnv",
                    &replace_value(&member, "inheritEnv", Value::List(names)),
                );
            }
            ("cwd" | "envfile", Value::String(text)) if text.is_empty() => {}
            ("cwd" | "workingdirectory" | "workingdir", _) => self.put("cwd", &member),
            ("envfile", _) => self.put("envFile", &member),
            ("url" | "uri" | "baseurl", _) => self.put("url", &member),
            ("headers" | "httpheaders" | "staticheaders" | "customheaders", Value::Map(_)) => {
                self.put_pairs("headers", &member);
            }
            ("envhttpheaders", Value::Map(pairs)) => {
                for pair in pairs {
                    self.put_header(pair, &pair.key, "", true);
                }
            }
            ("bearertokenenvvar", Value::String(_)) => {
                self.put_header(&member, "Authorization", "Bearer ", true);
            }
            ("bearertoken" | "apikey" | "authvalue" | "authenticationtoken", Value::String(_)) => {
                self.put_credential(&member);
            }
            ("auth", Value::String(word)) if word != "oauth" => {
                self.put_header(&member, "Authorization", "Bearer ", false);
            }
            ("authtype", Value::String(word)) if CREDENTIALS.contains(&word.as_str()) => {}
            ("type" | "transport" | "transporttype" | "protocol", Value::String(word)) => {
                self.put_type(&member, word);
            }
            ("enabled" | "isactive" | "active", Value::Bool(_)) => self.put("enabled", &member),
            ("disabled" | "disable", Value::Bool(_)) => self.put("disabled", &member),
            // An empty list means all tools.
            ("availabletools", Value::List(names)) if names.is_empty() => {}
            (
                "tools" | "includetools" | "allowedtools" | "enabledtools" | "availabletools",
                Value::List(_),
            ) => self.put("includeTools", &member),
            ("excludetools", Value::List(_)) if member.key == "excludeTools" => {
                self.put("excludeTools", &member);
            }
            (
                "disabledtools" | "excludetools" | "excludedtools" | "disallowedtools"
                | "blockedtools" | "suppressedtools",
                Value::List(_),
            ) => self.put("disabledTools", &member),
            ("tools", Value::Map(tools)) if tools.iter().all(is_switch) => {
                self.put_switches(&member, tools);
            }
            ("toolfilter", Value::Map(_)) => self.put_filter(&member),
            ("sandbox", Value::Map(_)) if self.program.contains(Client::VsCode) => {
                let message = "the confinement of VS Code has no effect here";
                self.note(
                    &member,
                    message.to_owned(),
                    "set `sandbox` of Fanlight's own configuration",
                );
            }
            ("timeout", Value::Map(limits)) => limits.iter().for_each(|limit| {
                let start = limit.key == "startup";
                self.put_time(
                    limit,
                    if start { "startTimeout" } else { "timeout" },
                    self.program.unit,
                );
            }),
            _ => match self.time_of(&member.key, &word) {
                Some((key, unit)) => self.put_time(&member, key, unit),
                None => self.members.push(member),
            },
        }
    }

    fn put(&mut self, key: &str, member: &Entry) {
        put(&mut self.members, key, member);
    }

    /// Adds variables or headers. In VS Code, null unsets a variable.
    fn put_pairs(&mut self, key: &str, member: &Entry) {
        let given = member
            .value
            .entries()
            .iter()
            .filter(|pair| !pair.value.is_null() && !is_comment(&pair.key))
            .cloned()
            .collect();
        self.put(key, &replace_value(member, key, Value::Map(given)));
    }

    /// Adds a header with the text of a member, or with the variable of that name.
    fn put_header(&mut self, member: &Entry, name: &str, before: &str, is_variable: bool) {
        let Some(value) = text(&member.value) else {
            return self.members.push(member.clone());
        };
        let value = if is_variable {
            format!("{before}${{{value}}}")
        } else {
            format!("{before}{value}")
        };
        let header = replace_value(member, name, Value::String(value));
        self.put(
            "headers",
            &replace_value(member, "headers", Value::Map(vec![header])),
        );
    }

    /// Adds a token as the header that `auth_type` says.
    fn put_credential(&mut self, member: &Entry) {
        let kind = find(self.server, "auth_type").and_then(|kind| text(&kind.value));
        match kind.unwrap_or("bearer_token") {
            "api_key" => self.put_header(member, "X-API-Key", "", false),
            "authorization" => self.put_header(member, "Authorization", "", false),
            "bearer_token" => self.put_header(member, "Authorization", "Bearer ", false),
            _ => self.members.push(member.clone()),
        }
    }

    fn put_type(&mut self, member: &Entry, word: &str) {
        // Fanlight's own words stay, for the message about a wrong one.
        let known = ["stdio", "http", "streamable-http", "streamableHttp", "sse"];
        let is_second = member.key != "type" && find(self.server, "type").is_some();
        let meant = match normalize_word(word).as_str() {
            _ if is_second => return,
            _ if known.contains(&word) => word,
            "stdio" => "stdio",
            "sse" => "sse",
            "http" | "streamablehttp" | "streamable" | "httpstream" => "http",
            // The command or URL says it.
            "local" | "remote" | "command" | "process" | "auto" => return,
            _ => word,
        };
        let meant = Value::String(meant.to_owned());
        self.put("type", &replace_value(member, "type", meant));
    }

    /// Adds the tools that are switched off one by one.
    fn put_switches(&mut self, member: &Entry, tools: &[Entry]) {
        let is_off = |tool: &&Entry| {
            let flag = find(&tool.value, "enabled").map_or(&tool.value, |flag| &flag.value);
            matches!(flag.value, Value::Bool(false))
        };
        let off = tools.iter().filter(is_off).map(|tool| Node {
            span: tool.key_span,
            value: Value::String(tool.key.clone()),
        });
        let off: Vec<_> = off.collect();
        if !off.is_empty() {
            self.put(
                "disabledTools",
                &replace_value(member, "disabledTools", Value::List(off)),
            );
        }
        let rest = |tool: &&Entry| {
            tool.value
                .entries()
                .iter()
                .any(|part| part.key != "enabled")
        };
        for tool in tools.iter().filter(rest) {
            let message = format!("only `enabled` of the tool `{}` is used", tool.key);
            self.note(
                tool,
                message,
                "use `override` of Fanlight's own configuration",
            );
        }
    }

    /// Adds a filter with a mode and a list of names.
    fn put_filter(&mut self, member: &Entry) {
        let mode = find(&member.value, "mode").and_then(|mode| text(&mode.value));
        let Some(list) = find(&member.value, "list") else {
            return;
        };
        match mode.map(normalize_word).as_deref() {
            Some("allow") => self.put("includeTools", list),
            Some("block") => self.put("disabledTools", list),
            _ => self.members.push(member.clone()),
        }
    }

    /// The option of a member with a time limit, and the unit of its plain numbers.
    fn time_of(&self, key: &str, word: &str) -> Option<(&'static str, Unit)> {
        let ends = [
            ("milliseconds", Unit::Milliseconds),
            ("ms", Unit::Milliseconds),
            ("seconds", Unit::Seconds),
            ("secs", Unit::Seconds),
            ("sec", Unit::Seconds),
        ];
        let (word, unit) = ends
            .iter()
            .find_map(|(end, unit)| Some((word.strip_suffix(end)?, *unit)))
            .unwrap_or((word, self.program.unit));
        match word {
            // Fanlight's own option.
            _ if key == "startTimeout" => None,
            // OpenCode's limit is for connecting and listing.
            "timeout" if self.program.contains(Client::OpenCode) => Some(("startTimeout", unit)),
            "timeout" | "tooltimeout" | "calltimeout" | "requesttimeout" | "readtimeout" => {
                Some(("timeout", unit))
            }
            "startuptimeout" | "starttimeout" | "inittimeout" | "connectiontimeout" => {
                Some(("startTimeout", unit))
            }
            _ => None,
        }
    }

    fn put_time(&mut self, member: &Entry, key: &str, unit: Unit) {
        let Some((value, is_guess)) = time_limit(&member.value.value, unit) else {
            return;
        };
        if is_guess {
            let message = format!("the number in `{}` is taken as milliseconds", member.key);
            self.note(member, message, "write the unit, such as `60s`");
        }
        let limit = Entry {
            key: member.key.clone(),
            ..replace_value(member, key, value)
        };
        self.put(key, &limit);
    }

    /// Whether this is an empty command or URL beside another one, which some programs write.
    fn is_empty_reach(&self, word: &str, value: &Node) -> bool {
        let is_reach = |word: &str| matches!(word, "command" | "cmd" | "url" | "uri" | "baseurl");
        let has_text = |member: &Entry| {
            text(&member.value).is_none_or(|text| !text.is_empty()) && !member.value.is_null()
        };
        let is_other = |member: &&Entry| is_reach(&normalize_word(&member.key)) && has_text(member);
        is_reach(word)
            && text(value) == Some("")
            && self.server.entries().iter().any(|member| is_other(&member))
    }

    fn warn_of_shell(&mut self, member: &Entry) {
        let runs_program = self.program.title == Program::CRUSH.title
            && texts(&member.value).any(|text| text.contains("$("));
        if runs_program {
            let message = format!("`$(…)` in `{}` is not run here", member.key);
            self.note(member, message, "put the value into a variable: `${NAME}`");
        }
    }

    fn note(&mut self, member: &Entry, message: String, help: &'static str) {
        self.notes.push(Note {
            span: member.key_span,
            message,
            help,
        });
    }
}

/// Values of `auth_type` for which a header is enough.
const CREDENTIALS: [&str; 5] = ["none", "bearer_token", "api_key", "authorization", ""];

/// All strings below a node, except those in mappings below mappings.
fn texts(node: &Node) -> impl Iterator<Item = &str> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let values = node.entries().iter().map(|entry| &entry.value);
    items.iter().chain(values).filter_map(text)
}

/// The name of an inherited variable, which may be a member of a mapping.
fn name_of(item: &Node) -> Node {
    item.field("name").unwrap_or(item).clone()
}

/// Whether an entry says of one tool whether it is offered.
fn is_switch(tool: &Entry) -> bool {
    matches!(tool.value.value, Value::Bool(_))
        || (matches!(tool.value.value, Value::Map(_)) && tool.key != "allow" && tool.key != "deny")
}

/// Whether an entry has a member that leads to its server.
pub(super) fn is_reachable(entry: &Entry) -> bool {
    let reach = [
        "command",
        "cmd",
        "url",
        "uri",
        "serverurl",
        "httpurl",
        "urls",
        "baseurl",
    ];
    entry.value.entries().iter().any(|member| {
        reach.contains(&normalize_word(&member.key).as_str())
            || member.key == "transport" && is_reachable(member)
    })
}
