import { expect, test } from 'vitest'
import { reconcileLog } from '../src/ops/reconcile-log.ts'
import { readSendingLog } from '../src/sends/log-file.ts'
import { testDatabase } from './support/database.ts'

const { pool } = await testDatabase()
const LINES = 20_000
const file = Buffer.from(
  ['To,ID,Status,Date', ...Array.from({ length: LINES }, (_, line) => `a${line}@x.example,m_${line},sent,1764424800`)].join('\n'),
)
async function* inOnePiece() {
  yield file
}

/** What something answers, and in how many turns of the event loop others could be answered meanwhile. */
async function turnsOf<Answer>(done: Promise<Answer>): Promise<{ answer: Answer; turns: number }> {
  let turns = 0
  let isDone = false
  const count = () => {
    turns += 1
    if (!isDone) setImmediate(count)
  }
  setImmediate(count)
  const answer = await done.finally(() => {
    isDone = true
  })
  return { answer, turns }
}

test('a sending log that comes in one piece is read in many turns, so that webhooks are answered meanwhile', async () => {
  const { answer, turns } = await turnsOf(readSendingLog(inOnePiece(), {}, 'UTC'))

  expect('lines' in answer && answer.lines.length).toBe(LINES)
  // One for each 50 lines.
  expect(turns).toBeGreaterThanOrEqual(400)
})

test('and is gone through in many more', async () => {
  const reading = turnsOf(
    reconcileLog({ pool, isExclusive: () => true }, inOnePiece(), { columns: {}, zone: 'UTC', by: undefined }),
  )
  const { answer, turns } = await reading

  expect('summary' in answer && answer.summary).toEqual({ settles: 0, adds: 0, known: 0, look: 0, nothing: LINES })
  // To read, to gather and to look at each 50, beside the answers of the database.
  expect(turns).toBeGreaterThanOrEqual(1_200)
})
