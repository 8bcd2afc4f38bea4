import type { Command } from 'commander'
import { readSettings } from '../../settings.ts'
import { databaseSettings } from '../environment.ts'

/** The commands that run the service. */
export function addServiceCommands(program: Command): void {
  program
    .command('start')
    .description('everything on this machine: database, email sandbox, service, worker')
    .action(async () => {
      const { startCommand } = await import('../start.ts')
      process.exit(await startCommand(readSettings()))
    })
  program
    .command('demo')
    .description('tells what happens to duplicates, early reports, lost answers and refusals, and exits')
    .action(async () => {
      const { demoCommand } = await import('../demo.ts')
      process.exit(await demoCommand())
    })
  program
    .command('serve')
    .description('answer webhooks and the API')
    .action(async () => (await import('../serve.ts')).serveCommand(readSettings()))
  program
    .command('worker')
    .description('process events, send emails, sweep')
    .action(async () => (await import('../serve.ts')).workerCommand(readSettings()))
  program
    .command('migrate')
    .description('bring the database to the newest schema')
    .action(async () => (await import('../serve.ts')).migrateCommand(databaseSettings()))
}
