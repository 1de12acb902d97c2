//! A configuration of several files: the first has the options, and all have servers.
//!
//! Further files are passed to [`load_all`] or named by `include` in the first one. A server has
//! one definition: the same name in two files is an error that names both.

mod tree;

use std::path::{Path, PathBuf};

use self::tree::Tree;
use crate::option::fields::{Fields, is_for_anchors};
use crate::option::{Options as _, Reader, substitute};
use crate::read::file;
use crate::read::server::{self, Context};
use crate::report::problem::{ConfigErrors, Problem, quoted};
use crate::syntax::{Entry, Node, Value};
use crate::variables::{Environment, Variables};
use crate::{
    Admin, AllowedClients, AuthChoice, Config, ConfigFile, Key, Loaded, MAX_FILE_SIZE,
    MAX_KEY_FILE_SIZE, Server, ServerAuth, Tls, Transport, env_file, keys, text_file,
};

/// Options that a further file may have.
const OF_FURTHER_FILES: [&str; 3] = ["mcpServers", "servers", "$schema"];

/// An option about clients' rights, as a file has it.
#[derive(Debug, Clone)]
pub struct WrittenRight {
    /// The option, such as `mcpServers.git.allow`.
    pub option: String,
    /// The file, and the line from 1.
    pub place: (PathBuf, usize),
    /// The value, in one line.
    pub value: String,
}

/// The options about clients' rights. `*` stands for any key.
const RIGHTS: [&str; 13] = [
    "mcpServers.*.allow",
    "mcpServers.*.allowTools.*",
    "mcpServers.*.tools",
    "mcpServers.*.approval",
    "endpoints.*.allow",
    "endpoints.*.servers",
    "endpoints.*.tools",
    "endpoints.*.prompts",
    "endpoints.*.resources",
    "endpoints.*.scopes",
    "auth.scopes",
    "policy.default",
    "admin.roles",
];

/// The servers read so far, with the file and line of each, and the options about rights.
#[derive(Default)]
pub(crate) struct Known {
    servers: Vec<(String, PathBuf, usize)>,
    rights: Vec<WrittenRight>,
}

impl Known {
    fn add(&mut self, tree: &Tree, origin: &Path) {
        let source = &tree.source;
        let Some(root) = &tree.root else {
            return;
        };
        for node in ["mcpServers", "servers"]
            .into_iter()
            .filter_map(|key| root.field(key))
        {
            for entry in node.entries() {
                let line = source.position(entry.key_span.start).line;
                self.servers
                    .push((entry.key.clone(), origin.to_owned(), line));
            }
        }
        for path in RIGHTS {
            let mut add = |option, entry: &Entry| {
                let line = source.position(entry.key_span.start).line;
                let value = source.slice(entry.value.span).split_whitespace();
                self.rights.push(WrittenRight {
                    option,
                    place: (origin.to_owned(), line),
                    value: value.collect::<Vec<_>>().join(" "),
                });
            };
            find(root, path, "", &mut add);
        }
    }

    fn find(&self, name: &str) -> Option<&(String, PathBuf, usize)> {
        self.servers.iter().find(|(known, ..)| known == name)
    }
}

/// Finds the entries at a path below `node`, whose own path is `above`.
fn find(node: &Node, path: &str, above: &str, found: &mut impl FnMut(String, &Entry)) {
    let (key, below) = path.split_once('.').unwrap_or((path, ""));
    for entry in node.entries() {
        let name = match entry.key.as_str() {
            "servers" if above.is_empty() => "mcpServers",
            name => name,
        };
        let option = format!("{above}{name}");
        match below {
            _ if key != "*" && key != name => {}
            "" => found(option, entry),
            below => find(&entry.value, below, &(option + "."), found),
        }
    }
}

/// Reads and checks the config files at `paths` and the files that they include; the first one has
/// the options. `env` looks up the files' variables. Secrets outside of files count as present, and
/// are not read.
///
/// # Errors
///
/// Every error of every file, or the one reason why one cannot be read.
pub fn load_all(
    paths: &[PathBuf],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Loaded, ConfigErrors> {
    load_all_in(paths, Environment::with_unread_secrets(env))
}

/// [`load_all`] that may ask a user for values.
///
/// # Errors
///
/// Every error of every file, or the one reason why one cannot be read.
pub fn load_all_in(
    paths: &[PathBuf],
    environment: Environment<'_>,
) -> Result<Loaded, ConfigErrors> {
    load(paths, environment, false)
}

/// [`load_all_in`] that leaves out servers that lack a value, such as an unset variable. Such a
/// server causes a warning and becomes a [`Transport::Incomplete`]; the other servers can be used.
///
/// # Errors
///
/// Every other error of every file, or the one reason why one cannot be read; the missing values,
/// if no server can be used.
pub fn load_usable(
    paths: &[PathBuf],
    environment: Environment<'_>,
) -> Result<Loaded, ConfigErrors> {
    let loaded = load(paths, environment, true)?;
    let mut enabled = loaded
        .config
        .servers
        .iter()
        .filter(|server| server.enabled)
        .peekable();
    let is_none_usable = enabled.peek().is_some()
        && enabled.all(|server| matches!(server.transport, Transport::Incomplete { .. }));
    if is_none_usable {
        Err(ConfigErrors::from_missing(&loaded.path, &loaded.warnings))
    } else {
        Ok(loaded)
    }
}

fn load(
    paths: &[PathBuf],
    environment: Environment<'_>,
    is_lenient: bool,
) -> Result<Loaded, ConfigErrors> {
    let Some((first, further)) = paths.split_first() else {
        return Err(ConfigErrors::from_file(
            Path::new(""),
            "no config file is named".to_owned(),
            "name one",
        ));
    };
    let (text, file) = text_file::read(first, MAX_FILE_SIZE)?;
    let mut known = Known::default();
    let kind = First {
        has_further: !further.is_empty(),
        reads_files: true,
        is_lenient,
    };
    let mut loaded = parse_first(&text, first, environment, kind, &mut known)?;
    loaded.files.insert(0, file);
    let (further_files, folders) = included("include", &loaded.config.include, first)?;
    let mut errors = Errors(None);
    for path in further.iter().chain(&further_files) {
        let servers = text_file::read(path, MAX_FILE_SIZE).and_then(|(text, file)| {
            loaded.files.push(file);
            parse_further(
                &text,
                path,
                (environment, is_lenient),
                &loaded.config,
                &mut known,
            )
        });
        if let Some(Further {
            servers,
            warnings,
            files,
        }) = errors.or_add(servers)
        {
            loaded.config.servers.extend(servers);
            loaded.warnings.extend(warnings);
            loaded.files.extend(files);
        }
    }
    errors.or_add(read_keys(&mut loaded));
    let warnings = roles_of_unknown_keys(&loaded.config, first);
    loaded.warnings.extend(warnings);
    errors.or_add(read_env_files(&mut loaded, is_lenient));
    check_user_env(&mut loaded);
    errors.or_add(read_policies(&mut loaded, first));
    errors.or_add(read_pins(&mut loaded, first));
    // If one file has all servers, the errors already have positions.
    if paths.len() > 1 || !loaded.config.include.is_empty() {
        let endpoints = loaded.config.wrong_endpoints().into_iter();
        let endpoints = endpoints.map(|wrong| (wrong.message, wrong.help));
        let versions = loaded.config.wrong_versions().into_iter();
        for (message, help) in endpoints.chain(versions.map(|wrong| (wrong.message, wrong.help))) {
            errors.or_add::<()>(Err(ConfigErrors::from_file(first, message, &help)));
        }
    }
    let replicas = loaded.config.replicas.as_ref();
    let of_replicas = replicas.and_then(|replicas| replicas.tls.as_ref());
    let all_tls = [
        loaded.config.tls.as_ref(),
        loaded.config.admin.tls.as_ref(),
        of_replicas,
    ];
    let of_valkey = replicas.and_then(|replicas| replicas.ca_file.as_deref());
    for path in all_tls
        .into_iter()
        .flatten()
        .flat_map(Tls::files)
        .chain(of_valkey)
        .map(PathBuf::from)
    {
        loaded.files.push(ConfigFile::read(path));
    }
    loaded
        .files
        .extend(folders.into_iter().map(ConfigFile::read));
    loaded.config.own_files = own_files(&loaded);
    loaded.rights = known.rights;
    errors.0.map_or(Ok(loaded), Err)
}

/// The files and folders that servers must not read.
fn own_files(loaded: &Loaded) -> Vec<PathBuf> {
    let state = loaded
        .config
        .state_dir
        .iter()
        .chain(&loaded.config.audit.file)
        .map(PathBuf::from);
    loaded
        .files
        .iter()
        .map(|file| file.path.clone())
        .chain(state)
        .collect()
}

/// The errors of several files.
struct Errors(Option<ConfigErrors>);

impl Errors {
    /// The value, or `None` after adding the errors.
    fn or_add<T>(&mut self, result: Result<T, ConfigErrors>) -> Option<T> {
        match (result, &mut self.0) {
            (Ok(value), _) => return Some(value),
            (Err(more), Some(errors)) => errors.extend(more),
            (Err(more), none) => *none = Some(more),
        }
        None
    }
}

/// Reads the file with keys, if there is one.
fn read_keys(loaded: &mut Loaded) -> Result<(), ConfigErrors> {
    let AuthChoice::Required(auth) = &mut loaded.config.auth else {
        return Ok(());
    };
    let Some(file) = &mut auth.keys else {
        return Ok(());
    };
    let keys = keys::load_keys(Path::new(&file.file))?;
    file.keys = keys.keys;
    loaded.warnings.extend(keys.warnings);
    loaded.files.extend(keys.file);
    Ok(())
}

/// Warns of roles for keys that do not exist now. These are not errors: otherwise nobody could
/// revoke such a key.
fn roles_of_unknown_keys(config: &Config, first: &Path) -> Vec<Problem> {
    let keys = config
        .auth
        .methods()
        .and_then(|auth| auth.keys.as_ref())
        .map_or(&[][..], |file| &file.keys);
    let problem = |(role, member): (&str, &AllowedClients)| {
        let AllowedClients::User(user) = member else {
            return None;
        };
        let name = user.strip_prefix("key#")?;
        let is_usable = |key: &Key| key.name == name && key.endpoints.is_none();
        if keys.iter().any(is_usable) {
            return None;
        }
        let message = format!(
            "no key for all endpoints is called {}, which has the role `{role}`",
            quoted(name)
        );
        let help =
            "add the key to the file of `auth.keys`, or remove the member from `admin.roles`";
        Some(ConfigErrors::from_file(first, message, help))
    };
    let problems = config.admin.roles.members().filter_map(problem);
    problems
        .flat_map(|problem| problem.into_warnings(str::to_owned))
        .map(|problem| Problem {
            is_missing: false,
            ..problem
        })
        .collect()
}

/// The default file with pins.
const PINS: &str = "fanlight.lock.json";

/// Reads the file with pins, if it exists.
fn read_pins(loaded: &mut Loaded, first: &Path) -> Result<(), ConfigErrors> {
    let pins = &mut loaded.config.pins;
    let path = first
        .parent()
        .unwrap_or(Path::new(""))
        .join(pins.file.as_deref().unwrap_or(PINS));
    pins.path = path.display().to_string();
    if pins.mode.is_none() && !path.exists() {
        return Ok(());
    }
    let mut file = ConfigFile {
        path,
        fingerprint: None,
    };
    if file.path.exists() {
        let (text, read) = text_file::read(&file.path, MAX_KEY_FILE_SIZE)?;
        (pins.text, file) = (Some(text), read);
    }
    // Without pins, nothing depends on the file.
    if pins.mode.is_some() {
        loaded.files.push(file);
    }
    Ok(())
}

/// Reads the files with policies.
fn read_policies(loaded: &mut Loaded, first: &Path) -> Result<(), ConfigErrors> {
    let (files, folders) = included("policy.files", &loaded.config.policy.files, first)?;
    let folder = first.parent().unwrap_or(Path::new(""));
    for path in files {
        let (text, file) = text_file::read(&path, MAX_FILE_SIZE)?;
        let name = path
            .strip_prefix(folder)
            .unwrap_or(&path)
            .display()
            .to_string();
        loaded.config.policy.texts.push((name, text));
        loaded.files.push(file);
    }
    loaded
        .files
        .extend(folders.into_iter().map(ConfigFile::read));
    Ok(())
}

/// Reads the files with variables of servers. A server's `env` overrides them.
fn read_env_files(loaded: &mut Loaded, is_lenient: bool) -> Result<(), ConfigErrors> {
    for server in loaded
        .config
        .servers
        .iter_mut()
        .filter(|server| server.enabled || !is_lenient)
    {
        let (Some(path), Transport::Stdio { env, .. }) = (&server.env_file, &mut server.transport)
        else {
            continue;
        };
        let (mut variables, file) =
            match env_file::read(path) {
                Ok(read) => read,
                Err(errors) if is_lenient => {
                    let name = quoted(&server.name);
                    loaded.files.push(ConfigFile::read(path.clone()));
                    let why = errors.first_message();
                    loaded.warnings.extend(errors.into_warnings(|message| {
                        format!("{message}: the server {name} is not used")
                    }));
                    let why = format!("its `envFile` {} cannot be used: {why}", path.display());
                    server.transport = Transport::Incomplete {
                        is_process: true,
                        why,
                    };
                    continue;
                }
                Err(errors) => return Err(errors),
            };
        variables.retain(|(name, _)| !env.iter().any(|(known, _)| known == name));
        env.extend(variables);
        loaded.files.push(file);
    }
    Ok(())
}

/// Leaves out servers that use per-user variables of a server without any.
fn check_user_env(loaded: &mut Loaded) {
    let servers = &loaded.config.servers;
    let has_users = |name: &str| {
        let of_users = servers
            .iter()
            .filter(|one| one.auth.as_ref().is_some_and(ServerAuth::is_of_users));
        of_users.map(|one| &one.name).any(|known| known == name)
    };
    let wrong = |server: &Server| {
        server
            .user_env
            .iter()
            .find(|(_, named)| !has_users(named))
            .cloned()
    };
    let found: Vec<_> = servers.iter().map(wrong).collect();
    for (server, wrong) in loaded.config.servers.iter_mut().zip(found) {
        let Some((variable, named)) = wrong.filter(|_| server.enabled) else {
            continue;
        };
        let why = format!(
            "its variable `{variable}` is `${{user:{named}}}`, and there is no server {} with `auth` of type `user` or \
             `userKey`",
            quoted(&named)
        );
        server.user_env.clear();
        server.transport = Transport::Incomplete {
            is_process: true,
            why,
        };
    }
}

/// The way to read the first file.
#[derive(Clone, Copy)]
pub(crate) struct First {
    /// Whether other files may have servers, too.
    pub(crate) has_further: bool,
    /// Whether to read the files that it names.
    pub(crate) reads_files: bool,
    /// Whether to leave out a server that lacks a value.
    pub(crate) is_lenient: bool,
}

/// Reads the first file, or the only one.
pub(crate) fn parse_first(
    text: &str,
    origin: &Path,
    environment: Environment<'_>,
    kind: First,
    known: &mut Known,
) -> Result<Loaded, ConfigErrors> {
    let mut tree = Tree::new(text, origin)?;
    let (own, mut files) = if kind.reads_files {
        own_variables(tree.root.as_ref(), origin)?
    } else {
        Default::default()
    };
    let client = tree.client.take();
    let variables = Variables::new(environment, origin, client.as_ref(), own, kind.reads_files);
    let folder = variables.folder(origin);
    let read = |reader: &mut Reader<'_>, root: &Node| {
        let mut config = file::read(reader, root, &folder, kind.has_further);
        file::check_roles(reader, &config, root);
        config.own_variables = own_variable_names(root);
        config
    };
    let (config, warnings) = tree.read(origin, &variables, kind.is_lenient, read);
    let warnings = warnings?;
    known.add(&tree, origin);
    files.extend(variables.files());
    Ok(Loaded {
        config,
        warnings,
        path: origin.to_owned(),
        files,
        rights: Vec::new(),
    })
}

/// The names of variables in options outside of servers.
fn own_variable_names(root: &Node) -> Vec<String> {
    let is_option = |key: &str| !OF_FURTHER_FILES.contains(&key) && !is_for_anchors(key);
    let own = root.entries().iter().filter(|entry| is_option(&entry.key));
    let (mut pending, mut found): (Vec<_>, _) =
        (own.map(|entry| &entry.value).collect(), Vec::new());
    while let Some(node) = pending.pop() {
        match &node.value {
            Value::String(text) => found.extend(substitute::names(text)),
            Value::List(items) => pending.extend(items),
            Value::Map(entries) => pending.extend(entries.iter().map(|entry| &entry.value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found
}

type OwnVariables = (env_file::Pairs, Vec<ConfigFile>);

/// The variables in the file that `envFile` names; it is read before any variable is looked up.
fn own_variables(root: Option<&Node>, origin: &Path) -> Result<OwnVariables, ConfigErrors> {
    let named = root
        .and_then(|root| root.field("envFile"))
        .map(|node| &node.value);
    let Some(Value::String(name)) =
        named.filter(|name| !matches!(name, Value::String(name) if name.is_empty()))
    else {
        return Ok(Default::default());
    };
    let path = origin.parent().unwrap_or(Path::new("")).join(name);
    let (variables, file) = env_file::read(&path)?;
    Ok((variables, vec![file]))
}

/// The content of a further file.
struct Further {
    servers: Vec<Server>,
    warnings: Vec<Problem>,
    /// The files that it names and that were read.
    files: Vec<ConfigFile>,
}

fn parse_further(
    text: &str,
    origin: &Path,
    (environment, is_lenient): (Environment<'_>, bool),
    config: &Config,
    known: &mut Known,
) -> Result<Further, ConfigErrors> {
    let mut tree = Tree::new(text, origin)?;
    let client = tree.client.take();
    let variables = Variables::new(environment, origin, client.as_ref(), Vec::new(), true);
    let folder = variables.folder(origin);
    let context = Context {
        folder: &folder,
        call_timeout: config.timeouts.call,
    };
    let read =
        |reader: &mut Reader<'_>, root: &Node| further_servers(reader, root, &context, known);
    let (servers, warnings) = tree.read(origin, &variables, is_lenient, read);
    let warnings = warnings?;
    known.add(&tree, origin);
    Ok(Further {
        servers,
        warnings,
        files: variables.files(),
    })
}

/// Reads the servers of a further file, and reports its options.
fn further_servers(
    reader: &mut Reader<'_>,
    root: &Node,
    context: &Context<'_>,
    known: &Known,
) -> Vec<Server> {
    let Some(fields) = Fields::open(reader, Config::SECTION, "the file", root) else {
        return Vec::new();
    };
    let is_option =
        |key: &str| Config::SECTION.find(key).is_some() && !OF_FURTHER_FILES.contains(&key);
    for entry in root.entries().iter().filter(|entry| is_option(&entry.key)) {
        let message = format!(
            "{} has no effect in a further config file",
            quoted(&entry.key)
        );
        reader.error(
            entry.key_span,
            message,
            "move it to the first file; others have `mcpServers` only",
        );
    }
    let named = ["mcpServers", "servers"].map(|key| fields.get(key));
    let mut servers = Vec::new();
    for all in named.into_iter().flatten() {
        for entry in all.value.entries() {
            if let Some((name, file, line)) = known.find(&entry.key) {
                let message = format!(
                    "the server {} is configured twice (first in {} on line {line})",
                    quoted(name),
                    file.display()
                );
                reader.error(
                    entry.key_span,
                    message,
                    "keep one of the two, or give one another name",
                );
            }
        }
        servers.extend(server::read_all(reader, all, context));
    }
    servers
}

/// The file with keys from the first of these config files. This checks the config file and does
/// not read the keys.
///
/// # Errors
///
/// Every error of the config file.
pub fn key_file(
    paths: &[PathBuf],
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<PathBuf>, ConfigErrors> {
    let Some(first) = paths.first() else {
        return Ok(None);
    };
    let (text, _) = text_file::read(first, MAX_FILE_SIZE)?;
    let environment = Environment::from_variables(env);
    let kind = First {
        has_further: true,
        reads_files: true,
        is_lenient: true,
    };
    let config = parse_first(&text, first, environment, kind, &mut Default::default())?.config;
    let keys = config.auth.methods().and_then(|auth| auth.keys.as_ref());
    Ok(keys.map(|keys| PathBuf::from(&keys.file)))
}

/// The most files of one configuration. Not an option, since it applies before options are known.
const MAX_FILES: usize = 256;

/// The files that the patterns of `option` match, in the order of the patterns and of their names,
/// and their folders.
fn included(
    option: &str,
    patterns: &[String],
    first: &Path,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), ConfigErrors> {
    let folder = first.parent().unwrap_or(Path::new(""));
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let wrong = |message: String| {
            ConfigErrors::from_file(
                first,
                message,
                &format!("see `{option}` in docs/configuration.md"),
            )
        };
        let whole = Path::new(&glob::Pattern::escape(&folder.to_string_lossy())).join(pattern);
        let whole = if Path::new(pattern).is_absolute() {
            PathBuf::from(pattern)
        } else {
            whole
        };
        let found = glob::glob(&whole.to_string_lossy()).map_err(|error| {
            wrong(format!(
                "`{option}` has the pattern {}: {}",
                quoted(pattern),
                error.msg
            ))
        })?;
        let before = files.len();
        for file in found {
            let file =
                file.map_err(|error| wrong(format!("`{option}` cannot read a folder: {error}")))?;
            if file.is_file() && !files.contains(&file) && file != first {
                files.push(file);
            }
        }
        let is_pattern = pattern.contains(['*', '?', '[']);
        if files.len() == before && !is_pattern {
            return Err(wrong(format!(
                "`{option}` names {}, and there is no such file",
                quoted(pattern)
            )));
        }
        if files.len() > MAX_FILES {
            return Err(wrong(format!(
                "`{option}` names more than {MAX_FILES} files"
            )));
        }
        // New files may appear in the folder before the first `*`.
        let plain = Path::new(pattern).components().take_while(|part| {
            let text = part.as_os_str().to_string_lossy();
            !text.contains(['*', '?', '['])
        });
        let plain = folder.join(plain.collect::<PathBuf>());
        if is_pattern && plain.is_dir() && !folders.contains(&plain) {
            folders.push(plain);
        }
    }
    Ok((files, folders))
}

/// Reads the operators' listener from the config file at `path`. The rest of the file is not
/// checked, and variables may be missing: a command that asks a running gateway need not have its
/// servers' variables.
///
/// # Errors
///
/// Every other error of `admin`, or the one reason why the file cannot be read.
pub fn load_admin(
    path: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Admin, ConfigErrors> {
    let (text, _) = text_file::read(path, MAX_FILE_SIZE)?;
    let mut tree = Tree::new(&text, path)?;
    let (own, _) = own_variables(tree.root.as_ref(), path).unwrap_or_default();
    let environment = Environment::from_variables(env);
    let client = tree.client.take();
    let variables = Variables::new(environment, path, client.as_ref(), own, true);
    if let Some(Node {
        value: Value::Map(entries),
        ..
    }) = &mut tree.root
    {
        entries.retain(|entry| entry.key == "admin");
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = |reader: &mut Reader<'_>, root: &Node| file::read(reader, root, folder, true);
    let (config, warnings) = tree.read(path, &variables, false, read);
    let errors = warnings.err();
    errors
        .and_then(ConfigErrors::without_missing_variables)
        .map_or(Ok(config.admin), Err)
}
