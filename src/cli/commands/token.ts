import type { Command } from 'commander'
import { withDatabase } from '../environment.ts'
import { terminal, wholeNumber, withOutput } from '../terminal.ts'

/** `oncehook token …`: access to the API. */
export function addTokenCommands(program: Command): void {
  const token = program.command('token').description('access to the API')
  token
    .command('create')
    .description('make a token; it is shown once, alone on stdout')
    .requiredOption('--role <role>', 'reader, operator or sender')
    .requiredOption('--name <name>', 'who or what it is for')
    .option('--expires <time>', 'when it ends, from now: 90d, 12h; without it only by being revoked')
    .option('--by <name>', 'who makes it; the user of this system without it')
    .action(async (options) => withDatabase(options, async (db) => (await import('../token.ts')).createTokenCommand(db, options)))
  withOutput(token.command('list'), { isTable: true })
    .description('the newest first: what each may do, when it was last used, when it ends')
    .option('--limit <n>', 'rows', wholeNumber)
    .option('--cursor <cursor>', 'the next page')
    .action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../token.ts')).listTokensCommand(db, { ...options, ...terminal(options) }),
      ),
    )
  withOutput(token.command('revoke'))
    .description('end a token at once and for good')
    .argument('<id-or-name>', 'its ID, or its name if only one token that works has it')
    .requiredOption('--reason <text>', 'why; kept in the audit log')
    .option('--by <name>', 'who decides; the user of this system without it')
    .action(async (which: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../token.ts')).revokeTokenCommand(db, which, { ...options, ...terminal(options) }),
      ),
    )
}
