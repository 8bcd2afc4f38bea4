import type { Command } from 'commander'
import { decisionRules, isExclusive, tryConfig, withDatabase } from '../environment.ts'
import { terminal, wholeNumber, withOutput } from '../terminal.ts'

/** `oncehook sends …`: the emails that were asked for. */
export function addSendCommands(program: Command): void {
  const sends = program.command('sends').description('the emails that were asked for')
  withOutput(sends.command('list'), { isTable: true })
    .description('newest first')
    .option('--status <statuses>', 'comma list, such as needs_review,bounced')
    .option('--since <time>', 'asked for from then on: ISO time, 24h, 7d')
    .option('--until <time>', 'asked for before')
    .option('--unknown-since <time>', 'of a call since then whose outcome nobody knew')
    .option('--q <text>', 'key, message ID, event ID, recipient or a part of the key')
    .option('--recipient <address>')
    .option('--policy <policy>', 'such as claim')
    .option('--source <name>', 'of the event that asked for it')
    .option('--limit <n>', 'rows', wholeNumber)
    .option('--cursor <cursor>', 'the next page')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook sends list --status needs_review,bounced --since 24h\n  $ oncehook sends list --q INV-1042\n  $ oncehook sends list --recipient ada@example.com --json',
    )
    .action(async (options) =>
      withDatabase(options, async (db, { sendsPerMinute }) =>
        (await import('../sends.ts')).listSendsCommand(db, { ...options, ...terminal(options), sendsPerMinute }),
      ),
    )
  withOutput(sends.command('show'))
    .description('one send: the answer as a sentence, and all that happened')
    .argument('<key>')
    .addHelpText('after', '\nExample:\n  $ oncehook sends show invoice:INV-1042:paid')
    .action(async (key: string, options) => {
      const sources = (await tryConfig())?.sources
      await withDatabase(options, async (db, { sendsPerMinute }) =>
        (await import('../sends.ts')).showSendCommand(db, key, { ...options, ...terminal(options), sendsPerMinute, sources }),
      )
    })
  withOutput(sends.command('resolve'))
    .description('decide a send whose outcome nobody knows, or reopen a closed one; or decide many')
    .argument('[key]', 'of one')
    .option('--keys <keys...>', 'of many')
    .option('--filter <verdict>', 'all that need a decision and are suggested: sent, not_sent, cant_tell, or all')
    .option('--dry-run', 'of many: only say what would change, and keep it as a plan')
    .option('--plan <id>', 'of many: carry out what a dry run has planned')
    .option('--yes', 'of many: without being asked')
    .option('--decision <decision>', 'sent: it went out; abandoned: it did not, leave it; retry: send it again')
    .option('--reopen', 'look at a closed one again')
    .option('--reason <text>', 'why; kept in the audit log')
    .option('--message-id <id>', "Inboxili's ID of the email, with --decision sent")
    .option('--version <n>', 'only if the send is still at this version', (text) => wholeNumber(text))
    .option(
      '--confirm <words>',
      "what is to be typed where nobody can be asked: 'send again' for a retry, the count for more than ten",
    )
    .option(
      '--by <name>',
      'who decides; the user of this system without it. Where a retry takes two people: the name of an operator',
    )
    .addHelpText(
      'after',
      `\nExamples:\n  $ oncehook sends resolve invoice:INV-1042:paid --decision sent --message-id m_93c --reason "seen in the sending log"\n  $ oncehook sends resolve invoice:INV-1042:paid --decision retry --reason "not in the log"\n  $ oncehook sends resolve invoice:INV-1042:paid --reopen --reason "customer has nothing"\n  $ oncehook sends resolve --filter sent --decision sent --reason "as suggested" --dry-run`,
    )
    .action(async (key: string | undefined, options) => {
      const rules = await decisionRules()
      await withDatabase(options, async (db, { sendsPerMinute, databaseUrl }) => {
        const given = { ...options, ...terminal(options), sendsPerMinute, ...rules }
        return key === undefined
          ? (await import('../resolve-many.ts')).resolveManyCommand(db, databaseUrl, given)
          : (await import('../resolve.ts')).resolveCommand(db, databaseUrl, key, given)
      })
    })
  withOutput(sends.command('attach'))
    .description('say that a parked report speaks of this send: it is settled by it')
    .argument('<key>')
    .requiredOption('--event <id>', "of the report's row, as sends show names it")
    .requiredOption('--reason <text>', 'why; kept in the audit log')
    .option('--other-mailbox', 'although the report names another address')
    .option('--version <n>', 'only if the send is still at this version', (text) => wholeNumber(text))
    .option('--by <name>', 'who decides; the user of this system without it')
    .addHelpText(
      'after',
      '\nExample:\n  $ oncehook sends attach invoice:INV-1042:paid --event 4711 --reason "the only one at that time"',
    )
    .action(async (key: string, options) => {
      const exclusive = await isExclusive()
      await withDatabase(options, async (db, { sendsPerMinute }) =>
        (await import('../attach.ts')).attachCommand(db, key, {
          ...options,
          ...terminal(options),
          sendsPerMinute,
          isExclusive: exclusive,
        }),
      )
    })
}
