import type { Command } from 'commander'
import { databaseSettings, useRunning } from '../environment.ts'
import { finish, terminal, withOutput } from '../terminal.ts'

/** The command that looks whether everything is there that Oncehook needs. */
export function addDoctorCommand(program: Command): void {
  withOutput(program.command('doctor'))
    .description('look at the database, the configuration, the email API and the processes; changes nothing and sends nothing')
    .addHelpText('after', '\nExits with 1 where there is a problem (x), with 0 where all is well or only worth a look (!).')
    .action(async (options) => {
      // Of an npm start in this folder it is what that runs with.
      useRunning()
      const { doctorCommand } = await import('../doctor.ts')
      finish(await doctorCommand(databaseSettings(), terminal(options)), options)
    })
}
