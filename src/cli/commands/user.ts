import type { Command } from 'commander'
import { readSettings } from '../../settings.ts'
import { useRunning, withDatabase } from '../environment.ts'
import { terminal, wholeNumber, withOutput } from '../terminal.ts'

/** `oncehook user …`: who signs in on the ops page. */
export function addUserCommands(program: Command): void {
  const user = program.command('user').description('people who sign in on the ops page')
  const change = (command: Command, description: string) =>
    withOutput(command)
      .description(description)
      .argument('<name>')
      .option('--reason <text>', 'why; kept in the audit log')
      .option('--by <name>', 'who decides; the user of this system without it')

  change(user.command('create'), 'add a person, who gets a password or a one-time link')
    .requiredOption('--role <role>', 'reader or operator')
    .option('--password-stdin', 'the password is the first line of the input; without it the terminal asks')
    .option('--link', 'no password: print an address that signs in once, within 15 minutes')
    .action(async (name: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).createUserCommand(
          db,
          name,
          { ...options, ...terminal(options) },
          options.link ? { link: { base: baseUrl() } } : { readPassword: passwordFrom(options) },
        ),
      ),
    )
  withOutput(user.command('list'), { isTable: true })
    .description('everybody, and how they sign in')
    .option('--limit <n>', 'rows', wholeNumber)
    .option('--cursor <cursor>', 'the next page')
    .action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).listUsersCommand(db, { ...options, ...terminal(options) }),
      ),
    )
  change(user.command('disable'), 'let a person in no more; signed out at once, everywhere').action(
    async (name: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).disableUserCommand(db, name, { ...options, ...terminal(options) }),
      ),
  )
  change(user.command('enable'), 'let a disabled person sign in again').action(async (name: string, options) =>
    withDatabase(options, async (db) =>
      (await import('../user.ts')).enableUserCommand(db, name, { ...options, ...terminal(options) }),
    ),
  )
  change(user.command('role'), 'give a person another role, from their next request on')
    .argument('<role>', 'reader or operator')
    .action(async (name: string, role: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).userRoleCommand(db, name, role, { ...options, ...terminal(options) }),
      ),
    )
  change(user.command('password'), 'set another password; signed out everywhere')
    .option('--password-stdin', 'it is the first line of the input; without it the terminal asks')
    .action(async (name: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).userPasswordCommand(db, name, { ...options, ...terminal(options) }, passwordFrom(options)),
      ),
    )
  change(user.command('link'), 'print an address that signs a person in once, within 15 minutes').action(
    async (name: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../user.ts')).userLinkCommand(db, name, { ...options, ...terminal(options), base: baseUrl() }),
      ),
  )
}

const passwordFrom = (options: { passwordStdin?: boolean }) => async () =>
  (await import('../password-input.ts')).readNewPassword(process.stdin, process.stderr, options.passwordStdin === true)

/** Where the service is, as far as this environment knows. */
function baseUrl(): string {
  const running = useRunning()
  const { publicUrl, port } = readSettings()
  return publicUrl ?? running?.url ?? `http://127.0.0.1:${port}`
}
