// Actions of buttons.

import { ask } from "./api.js";
import { say } from "./dom.js";

/** Posts to a path, shows `done`, and calls `refresh`. The buttons are disabled meanwhile, and enabled again only after a failure. */
export async function act(buttons, path, done, refresh) {
  const disable = (disabled) => buttons.forEach((button) => { button.disabled = disabled; });
  disable(true);
  try {
    await ask(path, { method: "POST" });
    say(done);
    await refresh();
  } catch (error) {
    say(error.message);
    disable(false);
  }
}
