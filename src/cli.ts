import { existsSync, readFileSync } from 'node:fs'
import { Command, InvalidArgumentError } from 'commander'
import type pg from 'pg'
import { type Config, loadConfig } from './config.ts'
import { openPool } from './db.ts'
import { ConfigError, loadEnvFile, readSettings, type Settings } from './settings.ts'

/** What a command says and how it ends; printed in one place. */
export interface CommandResult {
  stdout: string
  stderr: string
  exitCode: number
}

const EXIT_CONFIGURATION = 78
/** Reading whole tables of a large database takes its time. */
const MOST_MS_OF_A_CHECK = 300_000

/** Runs the command line. Exit codes: 0 done, 1 failed, 2 usage, 78 configuration. */
export async function main(argv: readonly string[]): Promise<void> {
  try {
    loadEnvFile()
    await program().parseAsync(argv)
  } catch (error) {
    if (error instanceof ConfigError) console.error(`oncehook: ${error.message}`)
    else console.error('oncehook:', messageOf(error))
    process.exitCode = error instanceof ConfigError ? EXIT_CONFIGURATION : 1
    // A part that could not start may have left timers or sockets behind.
    setTimeout(() => process.exit(), 200).unref()
  }
}

/** A connection that failed on two addresses has a code but no message. */
function messageOf(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { code } = error as NodeJS.ErrnoException
  return error.message || (code ?? error.name)
}

function program(): Command {
  const command = new Command('oncehook')
    .description('Records every payment event once and sends every follow-up email at most once.')
    .showHelpAfterError()
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))

  // Each command loads what it needs: verify starts in a moment, and production never loads the sandbox.
  command
    .command('start')
    .description('everything on this machine: database, email sandbox, service, worker')
    .action(async () => {
      const { startCommand } = await import('./cli/start.ts')
      process.exit(await startCommand(readSettings()))
    })
  command
    .command('demo')
    .description('tells what happens to duplicates, early reports, lost answers and refusals, and exits')
    .action(async () => {
      const { demoCommand } = await import('./cli/demo.ts')
      process.exit(await demoCommand())
    })
  command
    .command('serve')
    .description('answer webhooks and the API')
    .action(async () => (await import('./cli/serve.ts')).serveCommand(readSettings()))
  command
    .command('worker')
    .description('process events, send emails, sweep')
    .action(async () => (await import('./cli/serve.ts')).workerCommand(readSettings()))
  command
    .command('migrate')
    .description('bring the database to the newest schema')
    .action(async () => (await import('./cli/serve.ts')).migrateCommand(databaseSettings()))
  command
    .command('verify')
    .description('check a captured request, or a file of them, and say what is wrong with it')
    .argument('<file>', 'JSON: one request, or a file of test vectors')
    .option('--json', 'machine-readable')
    .action(async (file: string, options: { json?: boolean }) => {
      const { verifyFile } = await import('./cli/verify.ts')
      useRunning()
      // A file that brings its own secrets needs no configuration, so that one that can't be used is a note only.
      let stderr = ''
      const config = await loadConfig(readSettings().configPath).catch((error: unknown) => {
        stderr = `oncehook: ${error instanceof Error ? error.message : error}\n`
        return undefined
      })
      const given = config ? { sources: config.sources } : {}
      finish({ stderr, ...(await verifyFile(file, { json: options.json === true, ...given })) })
    })
  command
    .command('trigger')
    .description('sign a sample event as its provider would, and post it')
    .argument('<source>')
    .argument('[type]', 'such as invoice.paid; without it the known ones are listed')
    .option('--url <url>', 'address of the service')
    .option('--id <id>', 'event ID; the same one again is a redelivery')
    .option('--email <address>', "the customer's address")
    .option('--count <n>', 'post it so many times at once', wholeNumber)
    .action(
      async (name: string, type: string | undefined, options: { url?: string; id?: string; email?: string; count?: number }) => {
        const { triggerCommand } = await import('./cli/trigger.ts')
        const running = useRunning()
        const settings = readSettings()
        const config = await loadConfig(settings.configPath)
        const source = config.sources.get(name)
        if (!source) throw new ConfigError([`there is no source "${name}" (there are ${[...config.sources.keys()].join(', ')})`])
        const { url = running?.url ?? settings.publicUrl ?? `http://127.0.0.1:${settings.port}`, ...rest } = options
        finish(
          await triggerCommand(source, {
            url,
            ...(type !== undefined && { type }),
            ...rest,
            testKeysPath: settings.testKeysPath,
          }),
        )
      },
    )

  const list = (parent: Command, description: string) =>
    parent
      .command('list')
      .description(description)
      .option('--status <statuses>', 'comma list')
      .option('--since <time>', 'ISO time, 24h, 7d')
      .option('--limit <n>', 'rows', wholeNumber)
      .option('--cursor <cursor>', 'the next page')
      .option('--json', "the API's own object")
      .option('--no-color', 'no colours')
  const sends = command.command('sends').description('the emails that were asked for')
  list(sends, 'newest first')
    .option('--recipient <address>')
    .option('--q <text>', 'key, message ID, event ID or recipient')
    .action(async (options) =>
      withDatabase(async (db) =>
        (await import('./cli/sends.ts')).listSendsCommand(db, { ...options, ...terminal(options), ...rate() }),
      ),
    )
  sends
    .command('show')
    .description('one send and all that is known of it')
    .argument('<key>')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (key: string, options) =>
      withDatabase(async (db) =>
        (await import('./cli/sends.ts')).showSendCommand(db, key, { ...options, ...terminal(options), ...rate() }),
      ),
    )
  sends
    .command('resolve')
    .description('decide a send whose outcome nobody knows, or reopen a closed one')
    .argument('<key>')
    .option('--sent', 'it went out')
    .option('--abandoned', 'it did not, and is not to')
    .option('--retry', 'it did not: call again')
    .option('--reopen', 'look at a closed one again')
    .requiredOption('--reason <text>', 'why; kept in the audit log')
    .option('--message-id <id>', "Inboxili's ID of the email, with --sent")
    .option('--version <n>', 'only if the send is still at this version', (text) => wholeNumber(text))
    .option('--by <name>', 'who decides; the user of this system without it')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (key: string, options) =>
      withDatabase(async (db) =>
        (await import('./cli/resolve.ts')).resolveCommand(db, databaseSettings().databaseUrl, key, {
          ...options,
          ...terminal(options),
          ...rate(),
        }),
      ),
    )
  const events = command.command('events').description('what the providers posted')
  list(events, 'newest first')
    .option('--source <name>')
    .option('--event-id <id>', "the provider's ID")
    .option('--type <type>')
    .action(async (options) =>
      withDatabase(async (db) => (await import('./cli/events.ts')).listEventsCommand(db, { ...options, ...terminal(options) })),
    )
  events
    .command('show')
    .description('one event, by the ID of its row')
    .argument('<id>')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (id: string, options) =>
      withDatabase(async (db) =>
        (await import('./cli/events.ts')).showEventCommand(db, id, { ...options, ...terminal(options) }),
      ),
    )
  events
    .command('replay')
    .description('run the rules again, of one event or of all that a filter takes; what was sent is not sent again')
    .argument('[id]', 'of its row')
    .option('--source <name>')
    .option('--type <type>')
    .option('--status <statuses>', 'comma list; without it processed, ignored and failed ones')
    .option('--event-id <ids>', "comma list of the provider's IDs")
    .option('--since <time>', 'received from then on: ISO time, 24h, 7d')
    .option('--until <time>', 'received before')
    .option('--dry-run', 'only say what it would do, and keep it as a plan')
    .option('--plan <id>', 'carry out what a dry run has planned')
    .option('--by <name>', 'who asks for it; the user of this system without it')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (id: string | undefined, options) =>
      withSources(async (db, { config }) =>
        (await import('./cli/replay.ts')).replayCommand(db, databaseSettings().databaseUrl, config, id, {
          ...options,
          ...terminal(options),
        }),
      ),
    )
  const runs = command.command('runs').description('replays of many events')
  runs
    .command('show')
    .description('how far one is')
    .argument('<id>')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (id: string, options) =>
      withDatabase(async (db) => (await import('./cli/replay.ts')).showRunCommand(db, id, { ...options, ...terminal(options) })),
    )
  runs
    .command('stop')
    .description('add nothing more; what waits by now is processed')
    .argument('<id>')
    .option('--by <name>', 'who stops it; the user of this system without it')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (id: string, options) =>
      withDatabase(async (db) => (await import('./cli/replay.ts')).stopRunCommand(db, id, { ...options, ...terminal(options) })),
    )
  const sources = command.command('sources').description('who posts here, and what they were answered')
  sources
    .command('list')
    .description('with the requests of the last 24 hours')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (options) =>
      withSources(async (db, given) =>
        (await import('./cli/sources.ts')).listSourcesCommand(db, given, { ...options, ...terminal(options) }),
      ),
    )
  sources
    .command('show')
    .description('one source: why it refused, and which of its secrets are used')
    .argument('<name>')
    .option('--json', "the API's own object")
    .option('--no-color', 'no colours')
    .action(async (name: string, options) =>
      withSources(async (db, given) =>
        (await import('./cli/sources.ts')).showSourceCommand(db, given, name, { ...options, ...terminal(options) }),
      ),
    )
  command
    .command('reconcile')
    .description('settle from the sending log exported from the Inboxili dashboard; without --apply only say what would happen')
    .argument('<file>', 'CSV')
    .option('--columns <list>', 'FIELD=COLUMN,… for recipient, message_id, status, time, subject; guessed without it')
    .option('--zone <zone>', 'of times that name none, such as Europe/Berlin; UTC without it')
    .option('--dry-run', 'only say what would happen, as without --apply')
    .option('--apply', 'do it')
    .option('--reason <text>', 'why, with --apply; kept in the audit log')
    .option('--by <name>', 'who decides; the user of this system without it')
    .option('--json', 'machine-readable')
    .option('--no-color', 'no colours')
    .action(async (file: string, options) =>
      withDatabase(async (db) => {
        const { reconcileCommand } = await import('./cli/reconcile.ts')
        return reconcileCommand(db, file, await isExclusive(), {
          ...options,
          ...terminal(options),
          say: (text) => void process.stderr.write(text),
          isWatched: process.stderr.isTTY === true,
        })
      }),
    )
  command
    .command('sweep')
    .description('run every sweep of the workers once, and say what each changed')
    .option('--json', 'machine-readable')
    .option('--no-color', 'no colours')
    .action(async (options) =>
      withDatabase(
        async (db) =>
          (await import('./cli/sweep.ts')).sweepCommand(db, databaseSettings(), await isExclusive(), {
            ...options,
            ...terminal(options),
          }),
        // As a worker has it: some of them look through all old rows.
        30_000,
      ),
    )
  command
    .command('token')
    .description('access to the API')
    .command('create')
    .description('make a token; it is shown once, alone on stdout')
    .requiredOption('--role <role>', 'reader, operator or sender')
    .requiredOption('--name <name>', 'who or what it is for')
    .action(async (options) => withDatabase(async (db) => (await import('./cli/token.ts')).createTokenCommand(db, options)))
  command
    .command('verify-invariants')
    .description('look for rows that break what must hold; changes nothing, may run beside everything else')
    .option('--ledger <url>', 'compare with what the email sandbox accepted: its address')
    .option('--json', 'machine-readable')
    .option('--no-color', 'no colours')
    .action(async (options) =>
      withDatabase(
        async (db) =>
          (await import('./cli/verify-invariants.ts')).verifyInvariantsCommand(db, databaseSettings().staleAfterMs, {
            ...options,
            ...terminal(options),
          }),
        MOST_MS_OF_A_CHECK,
      ),
    )
  return command
}

function wholeNumber(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text)) throw new InvalidArgumentError('a whole number from 1 to 9999')
  return Number(text)
}

/** How this terminal wants its output. */
function terminal(options: { color?: boolean }) {
  const isTTY = process.stdout.isTTY === true
  const { NO_COLOR, TERM, LC_ALL, LC_CTYPE, LANG } = process.env
  return {
    width: isTTY ? process.stdout.columns : undefined,
    color: isTTY && options.color !== false && !NO_COLOR && TERM !== 'dumb',
    unicode: /utf-?8/i.test(LC_ALL || LC_CTYPE || LANG || ''),
  }
}

/** How fast the workers call, as far as this environment knows. */
const rate = () => ({ sendsPerMinute: readSettings().sendsPerMinute })

function finish({ stdout, stderr, exitCode }: CommandResult): void {
  process.stdout.write(stdout)
  process.stderr.write(stderr)
  process.exitCode = exitCode
}

async function withDatabase(run: (db: pg.Pool) => Promise<CommandResult>, statementTimeout = 10_000): Promise<void> {
  const { databaseUrl } = databaseSettings()
  const pool = openPool({ url: databaseUrl, name: 'oncehook-cli', max: 2, statementTimeout })
  try {
    finish(await run(pool))
  } finally {
    await pool.end()
  }
}

/** As `withDatabase`, with what the configuration says of the sources. */
async function withSources(
  run: (db: pg.Pool, given: { config: Config; publicUrl: string | undefined }) => Promise<CommandResult>,
): Promise<void> {
  useRunning()
  const { configPath, publicUrl } = readSettings()
  const config = await loadConfig(configPath)
  await withDatabase((db) => run(db, { config, publicUrl }))
}

/** Whether nobody but this service sends with the account. Not known without a configuration: then nothing settles by recipient. */
async function isExclusive(): Promise<boolean> {
  useRunning()
  try {
    return (await loadConfig(readSettings().configPath)).account === 'exclusive'
  } catch (error) {
    process.stderr.write(`oncehook: ${error instanceof Error ? error.message : error}\nSo nothing is matched by recipient.\n`)
    return false
  }
}

/** The database of the environment, else the one of a running `oncehook start` in this folder. */
function databaseSettings(): Settings & { databaseUrl: string } {
  const settings = readSettings()
  const databaseUrl = settings.databaseUrl ?? readRunning()?.databaseUrl
  if (!databaseUrl) throw new ConfigError(['DATABASE_URL is not set, and no npm start runs in this folder'])
  return { ...settings, databaseUrl }
}

/** Takes over the development secrets of a running `oncehook start`, where the environment has none. */
function useRunning(): ReturnType<typeof readRunning> {
  const running = readRunning()
  for (const [name, value] of Object.entries(running?.variables ?? {})) process.env[name] ??= value
  return running
}

function readRunning(): { url: string; databaseUrl: string; variables: Record<string, string> } | undefined {
  const path = '.data/running.json'
  return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')) : undefined
}
