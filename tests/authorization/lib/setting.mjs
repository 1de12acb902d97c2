// Constants shared by the authorization server, the resource and the checks.

/** Fanlight's leeway for clocks: the time after `exp` in which it still accepts a token. */
export const LEEWAY_S = 30;

export const SCOPES = {
  read: 'mcp:read',
  call: 'mcp:call',
  refund: 'till:refund',
  /** The scopes in the challenge for a client without a token. */
  usual: ['mcp:read', 'mcp:call'],
  all: ['mcp:call', 'mcp:read', 'till:refund'],
  /** All scopes that a call of the tool needs. */
  scopesOf: (tool) => (tool === 'refund' ? ['mcp:call', 'till:refund'] : ['mcp:call']),
};

/** The header by which a test's browser names its user. */
export const USER_HEADER = 'x-test-user';
