import { defineConfig, env, key } from 'oncehook'

// Paystack's charges are known by your own reference. Before you deliver something of value, ask its verify call too.
export default defineConfig({
  sources: {
    paystack: { provider: 'paystack', secrets: env.list('PAYSTACK_WEBHOOK_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      name: 'receipt',
      source: 'paystack',
      type: 'charge.success',
      email: ({ data }) => ({
        key: key('charge', data.reference, 'paid'),
        to: data.customer.email,
        from_email: 'billing@example.com',
        subject: 'We received your payment',
        html_body: '<p>Thank you, we received your payment.</p>',
      }),
    },
    {
      name: 'payment failed',
      source: 'paystack',
      type: 'invoice.payment_failed',
      email: ({ data }) => ({
        key: key('invoice', data.invoice_code ?? data.id, 'failed'),
        to: data.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your payment did not go through',
        html_body: '<p>Your payment did not go through. Please try another way to pay.</p>',
      }),
    },
    {
      name: 'refund',
      source: 'paystack',
      type: 'refund.processed',
      email: ({ data }) => ({
        key: key('refund', data.refund_reference ?? data.id, 'processed'),
        to: data.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your refund is on its way',
        html_body: '<p>We have refunded your payment.</p>',
      }),
    },
    {
      name: 'subscription ended',
      source: 'paystack',
      type: 'subscription.disable',
      email: ({ data }) => ({
        key: key('subscription', data.subscription_code ?? data.id, 'ended'),
        to: data.customer.email,
        from_email: 'billing@example.com',
        subject: 'Your subscription has ended',
        html_body: '<p>We are sorry to see you go.</p>',
      }),
    },
    {
      name: 'payout',
      source: 'paystack',
      type: 'transfer.success',
      email: ({ data }) => ({
        key: key('transfer', data.reference, 'done'),
        to: 'accounting@example.com',
        from_email: 'billing@example.com',
        subject: `Paystack has paid out ${data.reference}`,
        html_body: '<p>The money is on its way to our account.</p>',
      }),
    },
  ],
})
