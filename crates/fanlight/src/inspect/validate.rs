//! `fanlight validate`: checks the files of the configuration without connecting anywhere.

use fanlight_config::load_all;

use crate::cli::CommonArgs;
use crate::failure::Failure;
use crate::out::say;
use crate::reload::Unusable;
use crate::wiring;

/// Fails if the configuration cannot be used. With `allow_missing_env` what depends on variables that are not set is not
/// judged.
pub(crate) fn validate(args: &CommonArgs, allow_missing_env: bool) -> Result<(), Failure> {
    let paths = wiring::paths(args)
        .ok_or_else(|| Failure::usage("there is no configuration to validate: name it with --config"))?;
    let env = |name: &str| std::env::var(name).ok();
    let loaded = match load_all(&paths, &env) {
        // What a missing variable would hold is unknown: only what does not depend on it can be judged.
        Err(errors) if allow_missing_env => match errors.without_missing_variables() {
            Some(errors) => return Err(wiring::failure(&Unusable::Errors(errors))),
            None => {
                let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                say!("{}: valid, but for variables that are not set here", names.join(", "));
                return Ok(());
            }
        },
        loaded => loaded.map_err(|errors| wiring::failure(&Unusable::Errors(errors)))?,
    };
    for problem in &loaded.warnings {
        say!("{}", problem.render(problem.file(), false).trim_end_matches('\n'));
    }
    let enabled = loaded.config.servers.iter().filter(|server| server.enabled).count();
    say!("{}: valid, {} servers, {enabled} enabled", loaded.path.display(), loaded.config.servers.len());
    Ok(())
}
