import { Command } from 'commander'
import { addAuditCommands } from './cli/commands/audit.ts'
import { addCheckCommands } from './cli/commands/checks.ts'
import { addDoctorCommand } from './cli/commands/doctor.ts'
import { addEventCommands } from './cli/commands/events.ts'
import { addReconcileCommand } from './cli/commands/reconcile.ts'
import { addSendCommands } from './cli/commands/sends.ts'
import { addServiceCommands } from './cli/commands/service.ts'
import { addSourceCommands } from './cli/commands/sources.ts'
import { addSwitchCommands } from './cli/commands/switches.ts'
import { addTokenCommands } from './cli/commands/token.ts'
import { addTriggerCommand } from './cli/commands/trigger.ts'
import { addUserCommands } from './cli/commands/user.ts'
import { visible } from './cli/output.ts'
import { ConfigError, loadEnvFile } from './settings.ts'

/** What a command says and how it ends; printed in one place. */
export interface CommandResult {
  stdout: string
  stderr: string
  exitCode: number
}

const EXIT_CONFIGURATION = 78

/** Each declares its commands, and loads what one needs only when it runs: verify starts in a moment, and production never loads the sandbox. */
const parts = [
  addServiceCommands,
  addTriggerCommand,
  addSendCommands,
  addEventCommands,
  addSourceCommands,
  addReconcileCommand,
  addSwitchCommands,
  addAuditCommands,
  addTokenCommands,
  addUserCommands,
  addCheckCommands,
  addDoctorCommand,
]

/**
 * Runs the command line. Exit codes: 0 done, 1 failed, or checked and not good, 2 usage, 3 changed meanwhile and nothing done, 4 partly
 * done, 78 configuration, 130 interrupted.
 */
export async function main(argv: readonly string[]): Promise<void> {
  // Whoever reads has seen enough, as `head` has; the command still does what it was asked to.
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error
    })
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

/** A connection that failed on two addresses has a code but no message. Text of others may be in it. */
function messageOf(error: unknown): unknown {
  if (!(error instanceof Error)) return error
  const { code } = error as NodeJS.ErrnoException
  return (error.message || (code ?? error.name)).split('\n').map(visible).join('\n')
}

/** The whole command line, as it is declared. */
export function program(): Command {
  const command = new Command('oncehook')
    .description('Records every payment event once and sends every follow-up email at most once.')
    .showHelpAfterError()
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
    .addHelpText(
      'after',
      `
Data goes to stdout, all else to stderr. In a pipe tables are tab-separated values in full.
Exit codes: 0 done, 1 failed, 2 usage, 3 changed meanwhile, 4 partly done, 78 configuration, 130 interrupted.`,
    )
  for (const add of parts) add(command)
  return command
}
