import '../app.css';

import { open } from '../lib/open';
import Activity from './Activity.svelte';

open(Activity);
