import type { Command } from 'commander'
import { withDatabase, withSources } from '../environment.ts'
import { interruption, terminal, wholeNumber, withOutput } from '../terminal.ts'

/** `oncehook events …` and `oncehook runs …`: what the providers posted, and replays of it. */
export function addEventCommands(program: Command): void {
  const events = program.command('events').description('what the providers posted')
  withOutput(events.command('list'), { isTable: true })
    .description('newest first')
    .option('--status <statuses>', 'comma list of pending, processed, ignored, failed, quarantined')
    .option('--source <name>')
    .option('--type <type>')
    .option('--event-id <id>', "the provider's ID")
    .option('--ref <text>', "what it names: an object's ID, a number, an address")
    .option('--mode <mode>', 'live or test')
    .option('--has <what>', 'conflict or redelivery')
    .option('--since <time>', 'received from then on: ISO time, 24h, 7d')
    .option('--until <time>', 'received before')
    .option('--limit <n>', 'rows', wholeNumber)
    .option('--cursor <cursor>', 'the next page')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook events list --status failed,quarantined --since 24h\n  $ oncehook events list --event-id evt_1Q --json',
    )
    .action(async (options) =>
      withDatabase(options, async (db) =>
        (await import('../events.ts')).listEventsCommand(db, { ...options, ...terminal(options) }),
      ),
    )
  withOutput(events.command('show'))
    .description("one event, by the ID of its row, or by its provider's where only one has it")
    .argument('<id>')
    .action(async (id: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../events.ts')).showEventCommand(db, id, { ...options, ...terminal(options) }),
      ),
    )
  withOutput(events.command('replay'))
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
    .option('--yes', 'start without being asked')
    .option('--no-wait', "don't wait until all of them are processed")
    .option('--by <name>', 'who asks for it; the user of this system without it')
    .addHelpText(
      'after',
      '\nExamples:\n  $ oncehook events replay 4711\n  $ oncehook events replay --source stripe --since 2026-11-28T22:00Z --until 2026-11-29T06:00Z\n  $ oncehook events replay --status failed --since 24h --yes',
    )
    .action(async (id: string | undefined, options) =>
      withSources(options, async (db, { config, databaseUrl }) =>
        (await import('../replay.ts')).replayCommand(db, databaseUrl, config, id, {
          ...options,
          ...terminal(options),
          interrupted: interruption(),
        }),
      ),
    )
  const runs = program.command('runs').description('replays of many events')
  withOutput(runs.command('show'))
    .description('how far one is')
    .argument('<id>')
    .action(async (id: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../replay.ts')).showRunCommand(db, id, { ...options, ...terminal(options) }),
      ),
    )
  withOutput(runs.command('stop'))
    .description('add nothing more; what waits by now is processed')
    .argument('<id>')
    .option('--by <name>', 'who stops it; the user of this system without it')
    .action(async (id: string, options) =>
      withDatabase(options, async (db) =>
        (await import('../replay.ts')).stopRunCommand(db, id, { ...options, ...terminal(options) }),
      ),
    )
}
