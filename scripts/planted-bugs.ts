import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { type Bug, bugs } from './bugs.ts'

// `npm run test:planted`: does a test see each bug that would send twice, settle falsely or lose an event? Each bug is planted in a
// copy of the project, in which the one test that is to see it must fail. `-- NAME` plants only those whose names have this in them.

interface Report {
  testResults: { assertionResults: { fullName: string; status: string }[] }[]
}

const root = resolve(import.meta.dirname, '..')
const { positionals, values } = parseArgs({ allowPositionals: true, options: { parallel: { type: 'string', default: '1' } } })
const chosen = bugs.filter(({ name }) => positionals.length === 0 || positionals.some((part) => name.includes(part)))
const copies = mkdtempSync(join(tmpdir(), 'oncehook-planted-'))
process.on('exit', () => rmSync(copies, { recursive: true, force: true }))

/** A copy of the project that shares its packages. */
function copyTree(name: string): string {
  const folder = join(copies, name)
  const left = ['node_modules', '.git', '.data']
  cpSync(root, folder, { recursive: true, filter: (path) => !left.includes(relative(root, path).split('/')[0] ?? '') })
  symlinkSync(resolve(root, 'node_modules'), join(folder, 'node_modules'))
  return folder
}

/** The tests of these files whose names have this in them, by name, with what became of them. */
async function runTests(folder: string, files: readonly string[], name?: string): Promise<Map<string, string>> {
  const output = join(folder, 'planted.json')
  const vitest = join(folder, 'node_modules/vitest/vitest.mjs')
  const only = name === undefined ? [] : ['-t', name.replaceAll(/[^\w ]/g, '.')]
  const child = spawn(process.execPath, [vitest, 'run', ...files, ...only, '--reporter=json', `--outputFile=${output}`], {
    cwd: folder,
    stdio: 'ignore',
  })
  await new Promise((done) => child.once('exit', done))
  try {
    const { testResults } = JSON.parse(readFileSync(output, 'utf8')) as Report
    return new Map(testResults.flatMap((file) => file.assertionResults.map(({ fullName, status }) => [fullName, status])))
  } catch {
    return new Map()
  }
}

const statusesOf = (results: Map<string, string>, { test: [, name] }: Bug) =>
  [...results].filter(([fullName, status]) => fullName.includes(name) && status !== 'skipped').map(([, status]) => status)

/** How often the text of a change is there; more or less than once is an error in the list of bugs. */
const placesOf = (folder: string, [file, text]: Bug['changes'][number]) =>
  readFileSync(join(folder, file), 'utf8').split(text).length - 1

function plant(folder: string, { changes }: Bug): void {
  for (const [file, text, replacement] of changes) {
    const path = join(folder, file)
    writeFileSync(path, readFileSync(path, 'utf8').split(text).join(replacement))
  }
}

async function isCaught(bug: Bug): Promise<'caught' | 'NOT CAUGHT' | 'NOT RUN'> {
  const folder = copyTree(bug.name.replaceAll(/\W+/g, '-'))
  plant(folder, bug)
  const statuses = statusesOf(await runTests(folder, [bug.test[0]], bug.test[1]), bug)
  rmSync(folder, { recursive: true, force: true })
  return statuses.length === 0 ? 'NOT RUN' : statuses.includes('failed') ? 'caught' : 'NOT CAUGHT'
}

// Before anything takes long.
const misplaced = chosen.flatMap(({ name, changes }) =>
  changes.filter((change) => placesOf(root, change) !== 1).map(([file, text]) => `${name}: not once in ${file}: ${text}`),
)
if (misplaced.length > 0) throw new Error(misplaced.join('\n'))

console.log(`Without a bug: ${chosen.length} tests are to pass …`)
const healthy = await runTests(copyTree('unplanted'), [...new Set(chosen.map(({ test: [file] }) => file))])
const unusable = chosen.filter((bug) => {
  const statuses = statusesOf(healthy, bug)
  return statuses.length === 0 || statuses.some((status) => status !== 'passed')
})
for (const {
  name,
  test: [file, test],
} of unusable)
  console.log(`${name}: not there, or fails without the bug: ${file} ${test}`)

let missed = unusable.length
const waiting = chosen.filter((bug) => !unusable.includes(bug))
const plantAll = async () => {
  for (let bug = waiting.shift(); bug; bug = waiting.shift()) {
    const result = await isCaught(bug)
    if (result !== 'caught') missed += 1
    console.log(`${result.padEnd(10)}  ${bug.name}  (${bug.test[0].replace(/^test\/|\.test\.ts$/g, '')}: ${bug.test[1]})`)
  }
}
await Promise.all(Array.from({ length: Number(values.parallel) }, plantAll))
console.log(missed === 0 ? `All ${chosen.length} bugs are caught.` : `${missed} of ${chosen.length} bugs are not caught.`)
process.exitCode = missed === 0 ? 0 : 1
