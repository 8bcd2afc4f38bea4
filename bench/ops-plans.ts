import type pg from 'pg'
import type { Db } from '../src/db.ts'

/** One statement as a function of ours has run it. */
export interface Statement {
  text: string
  values: readonly unknown[]
}

/** A Db that keeps what is run by it. */
export function recordingDb(db: Db): { db: Db; statements: Statement[] } {
  const statements: Statement[] = []
  return {
    statements,
    db: {
      query(config, values) {
        const given = typeof config === 'string' ? { text: config, values } : config
        statements.push({ text: given.text, values: given.values ?? values ?? [] })
        return db.query(config, values)
      },
    },
  }
}

interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Index Name'?: string
  'Shared Hit Blocks'?: number
  'Shared Read Blocks'?: number
  'Actual Rows'?: number
  'Actual Loops'?: number
  'Rows Removed by Filter'?: number
  Plans?: PlanNode[]
}

export interface Plan {
  rows: number
  buffers: number
  /** In the order of the plan, each once. */
  indexes: string[]
  /** Tables of which it reads more than it should. */
  scanned: string[]
}

/** Tables that grow with every event, send or minute. */
export const BIG_TABLES: readonly string[] = [
  'webhook_events',
  'webhook_redeliveries',
  'email_sends',
  'send_attempts',
  'follow_ups',
  'delivery_reports',
  'event_refs',
  'source_minutes',
  'ack_minutes',
]

/** Big tables that the database would read row by row for a statement; it isn't run. */
export async function scansOf(db: Db, { text, values }: Statement): Promise<string[]> {
  const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(`explain (format json) ${text}`, values)
  const scanned = nodesOf(rows[0]?.['QUERY PLAN'][0].Plan)
    .filter((node) => node['Node Type'].endsWith('Seq Scan'))
    .map((node) => node['Relation Name'] ?? '')
  return scanned.filter((table) => BIG_TABLES.includes(table))
}

function nodesOf(node: PlanNode | undefined): PlanNode[] {
  return node === undefined ? [] : [node, ...(node.Plans ?? []).flatMap(nodesOf)]
}

/** What a bounded count may read of a table without an index, and what may be looked at in vain along one. */
const MOST_SCANNED = 30_000
const MOST_REMOVED = 150_000

function isLongScan(node: PlanNode): boolean {
  const { 'Actual Rows': rows = 0, 'Rows Removed by Filter': removed = 0, 'Actual Loops': loops = 0 } = node
  return removed * loops > MOST_REMOVED || (node['Node Type'].endsWith('Seq Scan') && (rows + removed) * loops > MOST_SCANNED)
}

/** How the database carries the statement out, and what it reads doing so. */
export async function planOf(db: pg.Pool | pg.ClientBase, { text, values }: Statement): Promise<Plan> {
  const { rows } = await db.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(`explain (analyze, buffers, format json) ${text}`, [
    ...values,
  ])
  const root = rows[0]?.['QUERY PLAN'][0].Plan
  if (!root) throw new Error('explain has answered nothing')
  const nodes = nodesOf(root)
  const unique = (names: (string | undefined)[]) => [...new Set(names.filter((name) => name !== undefined))]
  return {
    rows: root['Actual Rows'] ?? 0,
    buffers: (root['Shared Hit Blocks'] ?? 0) + (root['Shared Read Blocks'] ?? 0),
    indexes: unique(nodes.map((node) => node['Index Name'])),
    scanned: unique(nodes.map((node) => (isLongScan(node) ? node['Relation Name'] : undefined))),
  }
}
