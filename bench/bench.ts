import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { climb } from './ladder.ts'
import { overload, overloadReport } from './overload.ts'
import { ladderReport } from './report.ts'
import { climbWithRestarts, hasSurvived, survivalTable } from './restart.ts'

// npm run bench -- [overload] [options]; docs/performance.md says what they do.
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string' },
    prefill: { type: 'string', default: '0' },
    'shared-buffers': { type: 'string', default: '512MB' },
    connections: { type: 'string', default: '2000' },
    only: { type: 'string', default: '' },
    out: { type: 'string' },
    profiles: { type: 'string' },
    restart: { type: 'boolean', default: false },
  },
})
const { profiles, restart, 'shared-buffers': sharedBuffers } = values
const say = (line: string) => console.error(line)
const [what = 'ladder'] = positionals

async function run(): Promise<string> {
  if (what === 'overload') {
    const options = {
      seconds: Number(values.seconds ?? (restart ? 16 : 10)),
      connections: Number(values.connections),
      sharedBuffers,
      restart,
      profiles,
    }
    const result = await overload(options, say)
    if (result.survival && !hasSurvived(result.survival)) process.exitCode = 1
    return overloadReport(result)
  }
  const options = {
    rounds: Number(values.rounds),
    seconds: Number(values.seconds ?? (restart ? 8 : 2)),
    prefill: Number(values.prefill),
    sharedBuffers,
    only: values.only.split(';').filter((it) => it !== ''),
    profiles,
  }
  if (restart) {
    const survivals = await climbWithRestarts(options, say)
    if (!survivals.every(hasSurvived)) process.exitCode = 1
    return ['# PostgreSQL restarted in the middle', '', ...survivalTable(survivals), ''].join('\n')
  }
  return ladderReport(await climb(options, say), options)
}

const report = await run()
writeFileSync(values.out ?? `bench-${what}.md`, report)
console.log(report)
