import { collectDefaultMetrics, Gauge, type Registry } from '@prometheus-io/client'
import type pg from 'pg'
import { VERSION } from '../version.ts'

/** Connections to the database, by the name of their pool. */
export type Pools = Readonly<Record<string, pg.Pool>>

/** Adds the version. */
export function measureVersion(registry: Registry): void {
  new Gauge({
    name: 'oncehook_build_info',
    help: 'Always 1; the label tells the version.',
    labelNames: ['version'],
    registers: [registry],
  }).set({ version: VERSION }, 1)
}

/** Adds what every process tells of its connections. */
export function measurePools(registry: Registry, pools: Pools): void {
  const registers = [registry]
  const names = Object.keys(pools)
  // Read when they are asked for.
  const ofPools = (name: string, help: string, figureOf: (pool: pg.Pool) => number) =>
    new Gauge({
      name,
      help,
      labelNames: ['pool'],
      registers,
      collect() {
        for (const pool of names) this.set({ pool }, figureOf(pools[pool] as pg.Pool)) // one of its own names
      },
    })
  ofPools('oncehook_pool_connections', 'Open connections to the database, by pool.', (pool) => pool.totalCount)
  ofPools('oncehook_pool_idle_connections', 'Open connections that nobody uses.', (pool) => pool.idleCount)
  ofPools('oncehook_pool_max_connections', 'As many connections as the pool may open.', (pool) => pool.options.max)
  ofPools('oncehook_pool_waiting_queries', 'Those that wait for a connection.', (pool) => pool.waitingCount)
}

/** Adds what the library knows of any Node process: CPU, memory, event loop, garbage collection. Once in a process. */
export function measureNode(registry: Registry): void {
  collectDefaultMetrics({ register: registry })
}
