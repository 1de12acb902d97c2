// Constants shared by the authorization server, the resource and the checks.

/** The leeway of Fanlight for clocks: how long after its `exp` a token is still accepted. */
export const LEEWAY_S = 30;

export const SCOPES = {
  read: 'mcp:read',
  call: 'mcp:call',
  refund: 'till:refund',
  /** Those that a client without a token is asked to get. */
  usual: ['mcp:read', 'mcp:call'],
  all: ['mcp:call', 'mcp:read', 'till:refund'],
  /** All those that a call of the tool needs. */
  scopesOf: (tool) => (tool === 'refund' ? ['mcp:call', 'till:refund'] : ['mcp:call']),
};

/** The header by which the browser of a test says who sits in front of it. */
export const USER_HEADER = 'x-test-user';
