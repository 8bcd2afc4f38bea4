import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { climb } from './ladder.ts'
import { ladderReport } from './report.ts'

// npm run bench -- [--rounds 7] [--seconds 2] [--prefill 5000000] [--only naive,new] [--out FILE] [--profiles FOLDER]
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '7' },
    seconds: { type: 'string', default: '2' },
    prefill: { type: 'string', default: '0' },
    only: { type: 'string', default: '' },
    out: { type: 'string', default: 'bench-report.md' },
    profiles: { type: 'string' },
  },
})
const options = {
  rounds: Number(values.rounds),
  seconds: Number(values.seconds),
  prefill: Number(values.prefill),
  only: values.only.split(';').filter((it) => it !== ''),
  profiles: values.profiles,
}
const say = (line: string) => console.error(line)

const report = ladderReport(await climb(options, say), options)
writeFileSync(values.out, report)
console.log(report)
